"""Workload files: which marginals matter, in JSON, for people to write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import AdaptiveQsError, WorkloadError
from adaptive_qs.jsonfile import first_complaint, read_json
from adaptive_qs.workload.workload import Workload

Family = Literal[
    "marginal", "prefix", "range", "circular", "hybrid", "affine", "absdiff", "random", "custom"
]
"""Kinds of counting queries that a workload file may ask for."""

Ways = Annotated[int, Field(ge=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Part(BaseModel):
    """Some sets of attributes, the queries asked about each of them, and their weight."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    ways: Annotated[tuple[Ways, ...], Field(min_length=1)] | None = None
    """All sets of this many attributes, for each number listed."""
    attributes: Annotated[tuple[Names, ...], Field(min_length=1)] | None = None
    """Sets of attributes by name, instead of `ways`."""
    queries: Family | dict[str, Family] = "marginal"
    """The queries on every attribute of a set, or on each attribute by name."""
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """How much an error in one of these marginals counts. Weights of repeated sets add up."""

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
            return cls.model_validate_json(json.dumps(content), strict=True)
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
            WorkloadError: an attribute that the domain lacks, more ways than attributes, or a
                family of queries that is not available.
            ResourceExceeded: too many marginals.
        """
        weights: dict[Clique, float] = {}
        for number, part in enumerate(self.parts, start=1):
            try:
                for clique in _cliques(part, domain):
                    weights[clique] = weights.get(clique, 0.0) + part.weight
            except AdaptiveQsError as error:
                kind = WorkloadError if error.exit_code == 2 else type(error)
                raise kind(f"{source}: part {number}: {error}") from None
        return Workload(domain, weights)


def load_workload(path: str | Path, domain: Domain) -> Workload:
    """Read a workload file for the attributes of a domain.

    Raises:
        WorkloadError: the file is missing, is no workload file, or does not fit the domain; the
            message names the file and the part.
        ResourceExceeded: too many marginals.
    """
    return WorkloadFile.parse(read_json(path, WorkloadError), str(path)).workload(domain, str(path))


def _cliques(part: Part, domain: Domain) -> tuple[Clique, ...]:
    if isinstance(part.queries, Mapping):
        domain.clique(part.queries)
    families = part.queries.values() if isinstance(part.queries, Mapping) else [part.queries]
    for family in families:
        if family != "marginal":
            raise WorkloadError(f"{family!r} queries are not available yet: use 'marginal'")
    if part.attributes is None:
        return Workload.all_ways(domain, part.ways or ()).cliques
    return tuple(domain.clique(names) for names in part.attributes)


def _refuse(error: ValidationError, source: str) -> NoReturn:
    """Turn the first of pydantic's complaints into one line that names the part."""
    complaint = first_complaint(error)
    where = complaint.where
    place = source
    if len(where) > 1 and where[0] == "parts":
        place += f": part {int(where[1]) + 1}"
        where = where[2:]
    if complaint.kind == "too_short":
        complaint = complaint._replace(message="is empty: name at least one set of attributes")
    raise WorkloadError(complaint.line(place, where[:1])) from None
