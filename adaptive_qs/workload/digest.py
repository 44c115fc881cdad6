"""What a workload asks, as one hash: equal for equal questions."""

from __future__ import annotations

import hashlib

from adaptive_qs.workload.matrix_queries import Custom
from adaptive_qs.workload.queries import Queries
from adaptive_qs.workload.query_workload import QueryWorkload
from adaptive_qs.workload.workload import Workload


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
