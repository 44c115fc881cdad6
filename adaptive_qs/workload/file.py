"""Workload files: which queries matter, in JSON, for people to write."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar

import numpy as np
from pydantic import BaseModel, Field, ValidationError, model_validator

from adaptive_qs.arguments import plain_json
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import AdaptiveQsError, InputError, ResourceExceeded, WorkloadError
from adaptive_qs.jsonfile import first_complaint, read_json
from adaptive_qs.workload import families
from adaptive_qs.workload import workload as workloads
from adaptive_qs.workload.families import AttributeSpec, QueryMaker, QuerySpec, family_names
from adaptive_qs.workload.matrices import Custom, Queries
from adaptive_qs.workload.workload import MAX_CLIQUES, QueryPart, QueryWorkload, Workload, all_sets

S = TypeVar("S", bound=Sized)
W = TypeVar("W", Workload, QueryWorkload)

# From sets of attributes and families of queries to the parts of a query workload.


def all_ways_queries(
    domain: Domain, ways: int | Iterable[int], family: AttributeSpec = "marginal"
) -> QueryWorkload:
    """Return one family of queries on all sets of the given numbers of attributes, of weight 1.

    Errors are as for :func:`all_sets`, :func:`parse_ways` and :func:`make_part`.
    """
    maker = QueryMaker(domain)
    parts = (
        make_part(maker, some, family, 1.0) for some in all_sets(domain, workloads.parse_ways(ways))
    )
    return QueryWorkload(domain, tuple(parts))


def make_part(
    maker: QueryMaker, sets: workloads.CliqueArray, spec: QuerySpec, weight: float
) -> QueryPart:
    """Return the queries on sets of equally many attributes, shape (sets, k), positions as listed.

    A set that occurs twice with the same queries counts once, with the sum of its weights. Raise
    WorkloadError if a set cannot carry the queries, ResourceExceeded for too many coefficients.
    """
    by_name: Mapping[str, AttributeSpec]
    if isinstance(spec, dict):
        by_name = spec
    else:
        family = families.with_parameters(spec)
        if family.joint and sets.shape[1] > 1:
            weights: dict[tuple[tuple[int, ...], Queries], float] = {}
            for listed in map(tuple, sets.tolist()):
                key = (tuple(sorted(listed)), maker.joint(listed, family))
                weights[key] = weights.get(key, 0.0) + weight
            cliques, joint = zip(*weights)
            return QueryPart(np.array(cliques, np.int32), {}, joint, np.array([*weights.values()]))
        by_name = dict.fromkeys(maker.domain.names, family)
    ordered = np.sort(sets, axis=1)
    _, first, counts = np.unique(ordered, axis=0, return_index=True, return_counts=True)
    by_occurrence = np.argsort(first)
    distinct = ordered[first[by_occurrence]]
    axis = {}
    for attribute in np.unique(distinct).tolist():
        name = maker.domain.names[attribute]
        if name not in by_name:
            raise WorkloadError(
                f"queries give no family for attribute {name!r}: name it with its family"
            )
        axis[attribute] = maker.axis(attribute, by_name[name])
    return QueryPart(distinct, axis, None, weight * counts[by_occurrence].astype(np.float64))


Ways = Annotated[int, Field(ge=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Part(BaseModel, frozen=True, extra="forbid"):
    """Some sets of attributes, the queries on each of them, and their weight."""

    ways: Annotated[tuple[Ways, ...], Field(min_length=1)] | None = None
    """All sets of this many attributes, for each number listed."""
    attributes: Annotated[tuple[Names, ...], Field(min_length=1)] | None = None
    """Sets of attributes by name, instead of `ways`."""
    queries: QuerySpec = "marginal"
    """The queries on every attribute of a set, or on each attribute by name."""
    weight: Annotated[
        float, Field(ge=workloads.LEAST_WEIGHT, le=workloads.MOST_WEIGHT, allow_inf_nan=False)
    ] = 1.0
    """How much the error of each query counts (its square, for plan and answer).
    Weights of repeated sets add up. For plan and answer the largest may be 10^9 times the least."""

    @model_validator(mode="after")
    def _check_sets(self) -> Self:
        if (self.ways is None) == (self.attributes is None):
            raise ValueError('use either "ways" or "attributes"')
        return self

    def check_mapping(self, domain: Domain) -> None:
        """Refuse queries on attributes that the domain, or every set of the part, lacks."""
        if isinstance(self.queries, Mapping):
            domain.clique(self.queries)
            used = {name for names in self.attributes or (domain.names,) for name in names}
            for name in self.queries:
                if name not in used:
                    raise WorkloadError(
                        f"queries name attribute {name!r}, which is in no set: remove it"
                    )

    def marginals(
        self, domain: Domain, most: int | None = None
    ) -> list[list[tuple[Clique, float]]]:
        """Return weighted cliques of any queries; ``most`` is as for :meth:`Workload.all_ways`."""
        if self.attributes is None:
            every = Workload.all_ways(domain, self.ways or (), most)
            return [[(clique, self.weight * w) for clique, w in every.weights.items()]]
        return [[(domain.clique(names), self.weight) for names in self.attributes]]

    def within(self, domain: Domain) -> Self | None:
        """Return the part with the sets that a domain can have; None if there are none.

        Of a domain with fewer attributes than all numbers of ways, it has the set of all.
        """
        ways = tuple(sorted({min(k, len(domain)) for k in self.ways or ()}))
        names = set(domain.names)
        sets = tuple(each for each in self.attributes or () if names.issuperset(each))
        changes = {"ways": ways or None, "attributes": sets or None}
        return self.model_copy(update=changes) if ways or sets else None

    def query_parts(self, maker: QueryMaker) -> list[QueryPart]:
        """Return one query part for the sets of each number of attributes."""
        domain = maker.domain
        if self.attributes is None:
            sets = all_sets(domain, self.ways or ())
        else:
            by_degree: dict[int, list[list[int]]] = {}
            for names in self.attributes:
                domain.clique(names)
                listed = [domain.names.index(name) for name in names]
                by_degree.setdefault(len(names), []).append(listed)
            sets = [np.array(rows, dtype=np.int32) for rows in by_degree.values()]
        return [make_part(maker, some, self.queries, self.weight) for some in sets]


class WorkloadFile(BaseModel, frozen=True, extra="forbid"):
    """A workload as written in a file; the attributes are checked against a domain later."""

    version: Literal[1]
    """Version of the file format."""
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    """Requested queries; parts that overlap add their weights."""
    target: Annotated[str, Field(min_length=1)] | None = None
    """Column that models trained on a synthetic table are to predict, for synthesize and the
    forecasts of plan: every set is also requested together with it, and sets with it weigh more."""

    @classmethod
    def parse(cls, content: Any, source: str = "workload") -> Self:
        """Read the workload file from parsed JSON.

        Raise WorkloadError if it is none; the message names ``source``, the part and what to do.
        """
        try:
            text = json.dumps(content, default=plain_json)
        except (TypeError, ValueError, RecursionError):
            raise WorkloadError(f"{source} cannot be written as JSON. Use parsed JSON.") from None
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            _refuse(error, source)

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """Build the file that :meth:`workload` turns back into these cliques, in this order."""
        parts = []
        for weight, group in groupby(workload.weights.items(), key=lambda item: item[1]):
            names = tuple(workload.domain.clique_names(clique) for clique, _ in group)
            parts.append(Part(attributes=names, weight=float(weight)))
        return cls(version=1, parts=tuple(parts))

    def workload(
        self, domain: Domain, source: str = "workload", most: int | None = None
    ) -> Workload:
        """Return the weighted cliques over a domain; ``most`` is as for :meth:`Workload.all_ways`.

        Raises:
            WorkloadError: an attribute that the domain lacks, or more ways than attributes; the
                message names ``source`` and the part. Or the target cannot be served.
            ResourceExceeded: too many marginals.
        """
        weights: dict[Clique, float] = {}
        pieces = self._read(source, domain, "marginals", lambda part: part.marginals(domain, most))
        for _, found in pieces:
            for clique, weight in chain.from_iterable(found):
                weights[clique] = weights.get(clique, 0.0) + weight
        ways = {k for part in self.parts for k in part.ways or ()}
        unlisted = {} if most is None else workloads.unlisted_sets(domain, ways, most)
        if any(unlisted.values()):
            degrees = {len(names) for part in self.parts for names in part.attributes or ()}
            unlisted = {**dict.fromkeys(degrees, 0), **unlisted}
        else:
            unlisted = {}
        requested = Workload(domain, weights, unlisted)
        if self.target is None:
            return requested
        try:
            return requested.serving(self.target)
        except InputError as error:
            raise WorkloadError(f"{source}: {error}") from None

    @property
    def asks_for_cells(self) -> bool:
        """Whether all its queries are the cells of marginals."""
        names = (name for part in self.parts for name in family_names(part.queries))
        return all(name == "marginal" for name in names)

    def query_workload(self, domain: Domain, source: str = "workload") -> QueryWorkload:
        """Return the queries over a domain, in one part for each part and number of attributes.

        ``source`` names the file in errors; matrices of custom queries are in its folder.

        Raises:
            WorkloadError: an attribute that the domain lacks or that cannot carry its queries, more
                ways than attributes, a matrix that does not fit, or only queries that are zero.
            ResourceExceeded: too many sets of attributes, or too many coefficients.
        """
        maker = QueryMaker(domain, Path(source).parent)
        pieces = self._read(
            source, domain, "sets of attributes", lambda part: part.query_parts(maker)
        )
        parts = tuple(chain.from_iterable(found for _, found in pieces))
        if all(part.is_zero for part in parts):
            which = "part 1" if len(self.parts) == 1 else f"parts 1 to {len(self.parts)}"
            raise WorkloadError(
                f"{source}: {which}: every query is zero: ask about some cells; of random "
                "queries raise p or count, or change the seed"
            )
        return QueryWorkload(domain, parts, self.target)

    def _read(
        self, source: str, domain: Domain, noun: str, read: Callable[[Part], list[S]]
    ) -> Iterator[tuple[Part, list[S]]]:
        """Yield every part with what is read from it; errors name the file and the part."""
        requested = 0
        for number, part in enumerate(self.parts, start=1):
            try:
                part.check_mapping(domain)
                found = read(part)
                requested += sum(map(len, found))
                if requested > MAX_CLIQUES:  # repeated ones count each time
                    raise ResourceExceeded(
                        f"brings the {noun} to {requested:,}, more than {MAX_CLIQUES:,}: "
                        "request fewer"
                    )
            except AdaptiveQsError as error:
                kind = WorkloadError if error.exit_code == 2 else type(error)
                raise kind(f"{source}: part {number}: {error}") from None
            yield part, found


WorkloadSpec = None | int | Iterable[int] | str | Path | Mapping[str, Any] | Workload
"""A workload, its file or parsed content, or the numbers of attributes of all its marginals; None
for the default."""
QuerySource = None | int | Iterable[int] | str | Path | Mapping[str, Any] | QueryWorkload
"""The same for a workload of any queries."""


def resolve_workload(spec: WorkloadSpec, domain: Domain, most: int | None = None) -> Workload:
    """Return the workload over a domain; by default all 2-way marginals, 1-way for one attribute.

    ``most`` is as for :meth:`Workload.all_ways`.

    Raises:
        WorkloadError: the file or the number of ways does not fit the domain.
        ResourceExceeded: too many marginals.
    """
    of_file = partial(WorkloadFile.workload, most=most)
    return _resolve(spec, domain, Workload, of_file, partial(Workload.all_ways, most=most))


def resolve_queries(spec: QuerySource, domain: Domain) -> QueryWorkload:
    """Return the workload of any queries, as :func:`resolve_workload`.

    Raises:
        WorkloadError: also if an attribute cannot carry its queries, or a matrix
            file is missing or does not fit.
        ResourceExceeded: too many sets of attributes, or too many coefficients.
    """
    return _resolve(spec, domain, QueryWorkload, WorkloadFile.query_workload, all_ways_queries)


def split_workload(
    spec: WorkloadSpec, domains: Mapping[str, Domain], given: Mapping[str, int]
) -> dict[str, Workload]:
    """Return the marginals of each table of a set: those with at least one of its own attributes.

    A domain has the attributes of the table behind the ``given`` attributes of its ancestors.
    Numbers of ways stand for marginals of every table.

    Raises:
        WorkloadError: The workload requests more than marginals, has a target, names columns that
            are not together in one domain, or requests nothing of a table.
        ResourceExceeded: There are too many marginals.
    """
    file, source = _read_file(spec) or (None, "workload")
    if isinstance(spec, Workload):
        file = WorkloadFile.of(spec)
    elif file is None:
        ways = (2,) if spec is None else tuple(workloads.parse_ways(spec))
        file = WorkloadFile(version=1, parts=(Part(ways=ways),))
    if not file.asks_for_cells or file.target is not None:
        raise WorkloadError(f'{source}: leave out "queries" and "target", as there are many tables')
    for number, part in enumerate(file.parts, 1):
        for names in part.attributes or ():
            if not any(set(names) <= set(domain.names) for domain in domains.values()):
                raise WorkloadError(
                    f"{source}: part {number}: no table has all of {', '.join(map(repr, names))} "
                    "among its columns and the columns of its ancestors: request others"
                )
    found = {}
    for name, domain in domains.items():
        parts = [each for each in (part.within(domain) for part in file.parts) if each is not None]
        if parts:
            requested = file.model_copy(update={"parts": parts}).workload(
                domain, source, workloads.MOST_LISTED
            )
            weights = {c: weight for c, weight in requested.weights.items() if c[-1] >= given[name]}
        if not parts or not weights:
            raise WorkloadError(f"{source}: requests no marginal of {name}: add one")
        found[name] = replace(requested, weights=weights)
    return found


def other_queries(spec: Any) -> Callable[[Domain], QueryWorkload] | None:
    """Return a function that makes a file's queries over a domain; None if it has cells alone.

    The file may be given by its parsed content. Sources of other kinds give None as well. Raise
    WorkloadError if the file is missing or no workload file; what is returned raises as
    :meth:`WorkloadFile.query_workload`.
    """
    read = _read_file(spec)
    if read is None or read[0].asks_for_cells:
        return None
    return partial(read[0].query_workload, source=read[1])


def _read_file(spec: Any) -> tuple[WorkloadFile, str] | None:
    """Return a workload file, given by its path or content, and its name in errors; else None."""
    if isinstance(spec, Mapping):
        return WorkloadFile.parse(spec), "workload"
    if isinstance(spec, str | Path):
        return WorkloadFile.parse(read_json(spec, WorkloadError), str(spec)), str(spec)
    return None


def _resolve(
    spec: Any,
    domain: Domain,
    kind: type[W],
    of_file: Callable[[WorkloadFile, Domain, str], W],
    of_ways: Callable[[Domain, Any], W],
) -> W:
    if isinstance(spec, kind):
        if spec.domain != domain:
            raise WorkloadError("the workload is over other attributes: build it on this schema")
        return spec
    read = _read_file(spec)
    if read is not None:
        return of_file(read[0], domain, read[1])
    return of_ways(domain, min(2, len(domain)) if spec is None else spec)


def _refuse(error: ValidationError, source: str) -> NoReturn:
    """Turn the first of pydantic's complaints into one line that names the part."""
    complaint = first_complaint(error)
    where, place = complaint.where, source
    if len(where) > 1 and where[0] == "parts":
        place, where = f"{source}: part {int(where[1]) + 1}", where[2:]
    keys = where if where[:1] == ["queries"] else where[:1]
    raise WorkloadError(complaint.line(place, keys)) from None


def workload_digest(workload: Workload | QueryWorkload) -> str:
    """Return the SHA-256 of the attributes, sets, weights and queries, in hexadecimal digits."""
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
