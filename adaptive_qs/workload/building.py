"""From sets of attributes and the families asked of them to the parts of a query workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.families import QueryMaker, is_joint
from adaptive_qs.workload.family_spec import (
    Family,
    OneFamily,
    QuerySpec,
    with_parameters,
)
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import CliqueArray, QueryPart, QueryWorkload
from adaptive_qs.workload.workload import MAX_CLIQUES, ways_of


def all_ways_queries(
    domain: Domain, ways: int | Iterable[int], family: Family = "marginal"
) -> QueryWorkload:
    """The same family of queries on all sets of the given numbers of attributes, of weight 1.

    Raises:
        WorkloadError: a number below 1 or above the number of attributes, none at all, or a
            family that an attribute cannot carry.
        ResourceExceeded: more sets than ``MAX_CLIQUES``.
    """
    maker = QueryMaker(domain, None)
    sets = all_sets(domain, ways_of(ways))
    parts = (make_part(maker, domain, some, family, 1.0) for some in sets)
    return QueryWorkload(domain, tuple(parts))


def all_sets(domain: Domain, ways: Iterable[int]) -> list[CliqueArray]:
    """All sets of k attributes for each number k listed, once, shape (sets, k).

    Raises:
        WorkloadError: a number below 1 or above the number of attributes.
        ResourceExceeded: more sets than ``MAX_CLIQUES``.
    """
    d, arrays = len(domain), []
    for k in dict.fromkeys(ways):
        if not 1 <= k <= d:
            raise WorkloadError(
                f"ways is {k}: give a number from 1 to {d}, the number of attributes"
            )
        count = math.comb(d, k)
        if count > MAX_CLIQUES:
            raise ResourceExceeded(
                f"all sets of {k} of {d} attributes are {count:,}, more than {MAX_CLIQUES:,}: "
                "ask for fewer ways or list the sets of attributes"
            )
        flat = chain.from_iterable(combinations(range(d), k))
        arrays.append(np.fromiter(flat, np.int32, count * k).reshape(count, k))
    return arrays


def listed_sets(domain: Domain, sets: Iterable[Sequence[str]]) -> list[CliqueArray]:
    """Sets of attribute names by their number of names: positions as listed, shape (sets, k).

    Raises:
        SchemaError: an unknown name, or one given twice in a set.
    """
    by_degree: dict[int, list[list[int]]] = {}
    for names in sets:
        domain.clique(names)
        by_degree.setdefault(len(names), []).append([domain.names.index(name) for name in names])
    return [np.array(rows, dtype=np.int32) for rows in by_degree.values()]


def make_part(
    maker: QueryMaker, domain: Domain, sets: CliqueArray, spec: QuerySpec, weight: float
) -> QueryPart:
    """What is asked of some sets of equally many attributes.

    A set that occurs twice with the same queries is asked once, with the sum of its weights.

    Args:
        maker: of queries on the domain.
        domain: the attributes.
        sets: shape (sets, k), positions as listed.
        spec: what the file says.
        weight: of each set.

    Raises:
        WorkloadError: a set cannot carry the queries.
        ResourceExceeded: too many coefficients.
    """
    if isinstance(spec, dict):
        by_name = spec
    else:
        family = with_parameters(spec)
        if is_joint(family) and sets.shape[1] > 1:
            return _joint_part(maker, sets, family, weight)
        by_name = dict.fromkeys(domain.names, family)
    cliques, counts = _distinct(np.sort(sets, axis=1))
    axis = {}
    for attribute in np.unique(cliques).tolist():
        name = domain.names[attribute]
        if name not in by_name:
            raise WorkloadError(
                f"queries do not say what is asked of attribute {name!r}: name it with its family"
            )
        axis[attribute] = maker.axis(attribute, by_name[name])
    return QueryPart(cliques, axis, None, weight * counts)


def _joint_part(
    maker: QueryMaker, sets: CliqueArray, family: OneFamily, weight: float
) -> QueryPart:
    weights: dict[tuple[tuple[int, ...], Queries], float] = {}
    for listed in map(tuple, sets.tolist()):
        key = (tuple(sorted(listed)), maker.joint(listed, family))
        weights[key] = weights.get(key, 0.0) + weight
    cliques, joint = zip(*weights)
    return QueryPart(np.array(cliques, np.int32), {}, joint, np.array(list(weights.values())))


def _distinct(cliques: CliqueArray) -> tuple[CliqueArray, NDArray[np.float64]]:
    """The distinct rows in the order in which they first occur, and how often they do."""
    _, first, counts = np.unique(cliques, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return cliques[first[order]], counts[order].astype(np.float64)
