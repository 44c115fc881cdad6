"""What a caller may give as a workload of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from adaptive_qs.data.schema import Schema
from adaptive_qs.domain import Domain
from adaptive_qs.errors import WorkloadError
from adaptive_qs.workload.building import all_ways_queries
from adaptive_qs.workload.file import WorkloadFile, load_query_workload
from adaptive_qs.workload.matrix_queries import Custom
from adaptive_qs.workload.query_workload import QueryWorkload
from adaptive_qs.workload.workload import ways_of

QuerySource = None | int | Iterable[int] | str | Path | Mapping[str, Any] | QueryWorkload
"""All marginals of so many attributes, a workload file or its content, or a workload; None is the
default."""


def resolve_queries(source: QuerySource, domain: Domain) -> QueryWorkload:
    """The queries over a domain; by default all 2-way marginals, 1-way for a single attribute.

    Raises:
        WorkloadError: the file or the number of ways does not fit the domain.
        ResourceExceeded: too many sets of attributes, or too many coefficients.
    """
    if source is None:
        return all_ways_queries(domain, min(2, len(domain)))
    if isinstance(source, QueryWorkload):
        if source.domain != domain:
            raise WorkloadError("the workload is over other attributes: build it on this schema")
        return source
    if isinstance(source, str | Path):
        return load_query_workload(source, domain)
    if isinstance(source, Mapping):
        return WorkloadFile.parse(source).query_workload(domain)
    return all_ways_queries(domain, ways_of(source))


def check_learnable(workload: QueryWorkload, schema: Schema) -> None:
    """Refuse queries that depend on how many codes a column will have once it is learnt.

    Raises:
        WorkloadError: a custom matrix covers such a column; nothing has been spent.
    """
    names = workload.domain.names
    learnt = {names.index(name) for name in schema.private_columns}
    for part in workload.parts:
        for index, clique in enumerate(part.cliques.tolist()):
            if learnt.intersection(clique) and any(
                isinstance(queries, Custom) for queries in part.queries(index)
            ):
                named = " x ".join(names[i] for i in clique)
                raise WorkloadError(
                    f"a custom matrix covers {named}, of which bins or values are still to be "
                    "learnt: declare them"
                )
