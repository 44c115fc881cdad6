"""Workload files: which queries matter, in JSON, for people to write."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, combinations, groupby
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from adaptive_qs.arguments import plain_json
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import AdaptiveQsError, ResourceExceeded, WorkloadError
from adaptive_qs.jsonfile import first_complaint, read_json
from adaptive_qs.workload.families import (
    AttributeSpec,
    QueryFamily,
    QueryMaker,
    QuerySpec,
    family_names,
    with_parameters,
)
from adaptive_qs.workload.matrices import Custom, Queries
from adaptive_qs.workload.workload import (
    LEAST_WEIGHT,
    MAX_CLIQUES,
    MOST_WEIGHT,
    CliqueArray,
    QueryPart,
    QueryWorkload,
    Workload,
    ways_of,
)

# From sets of attributes and the families asked of them to the parts of a query workload.


def all_ways_queries(
    domain: Domain, ways: int | Iterable[int], family: AttributeSpec = "marginal"
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
    by_name: Mapping[str, AttributeSpec]
    if isinstance(spec, dict):
        by_name = spec
    else:
        family = with_parameters(spec)
        if family.joint and sets.shape[1] > 1:
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
    maker: QueryMaker, sets: CliqueArray, family: QueryFamily, weight: float
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


Ways = Annotated[int, Field(ge=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Part(BaseModel):
    """Some sets of attributes, the queries asked about each of them, and their weight."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    ways: Annotated[tuple[Ways, ...], Field(min_length=1)] | None = None
    """All sets of this many attributes, for each number listed."""
    attributes: Annotated[tuple[Names, ...], Field(min_length=1)] | None = None
    """Sets of attributes by name, instead of `ways`."""
    queries: QuerySpec = "marginal"
    """The queries on every attribute of a set, or on each attribute by name."""
    weight: Annotated[float, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)] = 1.0
    """How much the error of each query counts (its square, for plan and answer).
    Weights of repeated sets add up. For plan and answer the largest may be 10^9 times the least."""

    @model_validator(mode="after")
    def _check_sets(self) -> Self:
        if (self.ways is None) == (self.attributes is None):
            raise ValueError('give either "ways" or "attributes"')
        return self


class WorkloadFile(BaseModel):
    """A workload as written in a file; the attributes are checked against a domain later."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    version: Literal[1]
    """Version of the file format."""
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    """What is asked for; parts that overlap add their weights."""

    @classmethod
    def parse(cls, content: Any, source: str = "workload") -> Self:
        """The workload file in parsed JSON.

        Raises:
            WorkloadError: it is not one; the message names ``source``, the part and the mend.
        """
        try:
            text = json.dumps(content, default=plain_json)
        except (TypeError, ValueError, RecursionError):
            raise WorkloadError(f"{source}: is not what JSON can hold: give parsed JSON") from None
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            _refuse(error, source)

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """The file that :meth:`workload` turns back into these cliques, in this order."""
        parts = []
        for weight, group in groupby(workload.weights.items(), key=lambda item: item[1]):
            names = tuple(workload.domain.clique_names(clique) for clique, _ in group)
            parts.append(Part(attributes=names, weight=float(weight)))
        return cls(version=1, parts=tuple(parts))

    def workload(self, domain: Domain, source: str = "workload") -> Workload:
        """The weighted cliques over a domain.

        Raises:
            WorkloadError: an attribute that the domain lacks, more ways than attributes, or
                queries other than marginals.
            ResourceExceeded: too many marginals.
        """
        weights: dict[Clique, float] = {}
        asked = 0
        for number, part in enumerate(self.parts, start=1):
            with _naming(source, number):
                cliques = _cliques(part, domain)
                asked += len(cliques)
                if asked > MAX_CLIQUES:  # also of those that are asked for again and again
                    raise ResourceExceeded(
                        f"brings the marginals to {asked:,}, more than {MAX_CLIQUES:,}: ask for "
                        "fewer"
                    )
                for clique in cliques:
                    weights[clique] = weights.get(clique, 0.0) + part.weight
        return Workload(domain, weights)

    def query_workload(
        self, domain: Domain, source: str = "workload", folder: str | Path | None = None
    ) -> QueryWorkload:
        """The queries over a domain: for each part of the file, one part per number of attributes.

        Args:
            domain: the attributes.
            source: what errors call the file.
            folder: where the matrix files of custom queries are.

        Raises:
            WorkloadError: an attribute that the domain lacks or that cannot carry its queries, more
                ways than attributes, a matrix that does not fit, or only queries that are zero.
            ResourceExceeded: too many sets of attributes, or too many coefficients.
        """
        maker = QueryMaker(domain, None if folder is None else Path(folder))
        parts: list[QueryPart] = []
        for number, part in enumerate(self.parts, start=1):
            with _naming(source, number):
                parts += _query_parts(part, domain, maker)
                if (sets := sum(map(len, parts))) > MAX_CLIQUES:
                    raise ResourceExceeded(
                        f"brings the sets of attributes to {sets:,}, more than {MAX_CLIQUES:,}: "
                        "ask for fewer"
                    )
        if all(part.is_zero for part in parts):
            which = "part 1" if len(self.parts) == 1 else f"parts 1 to {len(self.parts)}"
            raise WorkloadError(
                f"{source}: {which}: every query is zero: ask about some cells; of random "
                "queries raise p or count, or change the seed"
            )
        return QueryWorkload(domain, tuple(parts))


def load_workload(path: str | Path, domain: Domain) -> Workload:
    """Read a workload file of marginals for the attributes of a domain.

    Raises:
        WorkloadError: the file is missing, is no workload file, or does not fit the domain; the
            message names the file and the part.
        ResourceExceeded: too many marginals.
    """
    return WorkloadFile.parse(read_json(path, WorkloadError), str(path)).workload(domain, str(path))


WorkloadSpec = None | int | Iterable[int] | str | Path | Mapping[str, Any] | Workload
"""All marginals of so many attributes, a workload file or its parsed content, or a workload; None
is the default."""


def resolve_workload(spec: WorkloadSpec, domain: Domain) -> Workload:
    """The workload over a domain; by default all 2-way marginals, 1-way for a single attribute.

    Raises:
        WorkloadError: the file or the number of ways does not fit the domain.
        ResourceExceeded: too many marginals.
    """
    if spec is None:
        return Workload.all_ways(domain, min(2, len(domain)))
    if isinstance(spec, Workload):
        if spec.domain != domain:
            raise WorkloadError("the workload is over other attributes: build it on this schema")
        return spec
    if isinstance(spec, str | Path):
        return load_workload(spec, domain)
    if isinstance(spec, Mapping):
        return WorkloadFile.parse(spec).workload(domain)
    return Workload.all_ways(domain, ways_of(spec))


def load_query_workload(path: str | Path, domain: Domain) -> QueryWorkload:
    """Read a workload file of any queries for the attributes of a domain.

    Raises:
        WorkloadError: as for :func:`load_workload`, or an attribute cannot carry the queries asked
            of it, or a matrix file is missing or does not fit.
        ResourceExceeded: too many sets of attributes, or too many coefficients.
    """
    file = WorkloadFile.parse(read_json(path, WorkloadError), str(path))
    return file.query_workload(domain, str(path), Path(path).parent)


def _cliques(part: Part, domain: Domain) -> tuple[Clique, ...]:
    _check_mapping(part, domain)
    for family in family_names(part.queries):
        if family != "marginal":
            raise WorkloadError(
                f"{family!r} queries are for plan and answer: here use 'marginal' instead"
            )
    if part.attributes is None:
        return Workload.all_ways(domain, part.ways or ()).cliques
    return tuple(domain.clique(names) for names in part.attributes)


def _query_parts(part: Part, domain: Domain, maker: QueryMaker) -> list[QueryPart]:
    _check_mapping(part, domain)
    if part.attributes is None:
        sets = all_sets(domain, part.ways or ())
    else:
        sets = listed_sets(domain, part.attributes)
    return [make_part(maker, domain, some, part.queries, part.weight) for some in sets]


def _check_mapping(part: Part, domain: Domain) -> None:
    """Refuse queries on attributes that the domain, or every set of the part, lacks."""
    if not isinstance(part.queries, Mapping):
        return
    domain.clique(part.queries)
    used = {name for names in part.attributes or (domain.names,) for name in names}
    for name in part.queries:
        if name not in used:
            raise WorkloadError(f"queries name attribute {name!r}, which is in no set: remove it")


@contextmanager
def _naming(source: str, number: int) -> Iterator[None]:
    """Put the file and the part in front of what is wrong with them."""
    try:
        yield
    except AdaptiveQsError as error:
        kind = WorkloadError if error.exit_code == 2 else type(error)
        raise kind(f"{source}: part {number}: {error}") from None


_EMPTY = {
    "parts": "is empty: give at least one part",
    "ways": "is empty: give a number of attributes, as [2]",
}


def _refuse(error: ValidationError, source: str) -> NoReturn:
    """Turn the first of pydantic's complaints into one line that names the part."""
    complaint = first_complaint(error)
    where = complaint.where
    place = source
    if len(where) > 1 and where[0] == "parts":
        place += f": part {int(where[1]) + 1}"
        where = where[2:]
    if complaint.kind == "too_short":
        key = str(complaint.where[-1])
        message = _EMPTY.get(key, "is empty: name at least one set of attributes")
        complaint = complaint._replace(message=message)
    keys = where if where[:1] == ["queries"] else where[:1]
    raise WorkloadError(complaint.line(place, keys)) from None


# What a workload asks, as one hash: equal for equal questions.


def workload_digest(workload: Workload | QueryWorkload) -> str:
    """SHA-256 of the attributes, sets, weights and queries, in hexadecimal digits."""
    domain = workload.domain
    digest = hashlib.sha256(repr((domain.names, domain.sizes)).encode())
    if isinstance(workload, Workload):
        for clique in workload.cliques:
            digest.update(repr((clique, workload.weights[clique])).encode())
        return digest.hexdigest()
    for part in workload.parts:
        digest.update(repr(part.cliques.shape).encode())
        digest.update(part.cliques.astype("<i4").tobytes())
        digest.update(part.weights.astype("<f8").tobytes())
        for attribute, queries in sorted(part.axis.items()):
            digest.update(f"{attribute}: {_identity(queries)}".encode())
        for joint in part.joint or ():
            digest.update(_identity(joint).encode())
    return digest.hexdigest()


def _identity(queries: Queries) -> str:
    if isinstance(queries, Custom):
        content = hashlib.sha256(queries.coefficients.tobytes()).hexdigest()
        return f"{type(queries).__name__}{queries.shape}{content}"
    return repr(queries)


# The published JSON Schema of workload files, generated from the models.
#
# The copy beside this module is kept current by a test; write it anew with
# `python -m adaptive_qs.workload.file`.

PUBLISHED = Path(__file__).with_name("workload.schema.json")
"""The published file."""


def render() -> str:
    """The text of the published file: JSON Schema (draft 2020-12) of version 1."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:adaptive-qs:workload:1",
        **WorkloadFile.model_json_schema(schema_generator=_AnyOf),
    }
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _AnyOf(GenerateJsonSchema):
    """{"family": "marginal"} names a family, or the queries on an attribute called "family"."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> dict[str, Any]:
        content = super().tagged_union_schema(schema)
        content["anyOf"] = content.pop("oneOf")
        return content


if __name__ == "__main__":
    PUBLISHED.write_text(render(), encoding="utf-8")
