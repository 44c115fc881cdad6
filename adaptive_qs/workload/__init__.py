"""Workloads: sets of attributes with a family of queries on each."""

from typing import Any

from adaptive_qs.arguments import Registry

_FAMILIES = "adaptive_qs.workload.families"
FAMILIES: Registry[Any] = Registry(
    {
        "marginal": f"{_FAMILIES}:MarginalFamily",
        "prefix": f"{_FAMILIES}:PrefixFamily",
        "range": f"{_FAMILIES}:RangeFamily",
        "circular": f"{_FAMILIES}:CircularFamily",
        "hybrid": f"{_FAMILIES}:HybridFamily",
        "affine": f"{_FAMILIES}:AffineFamily",
        "absdiff": f"{_FAMILIES}:AbsDiffFamily",
        "random": f"{_FAMILIES}:RandomQueries",
        "custom": f"{_FAMILIES}:CustomQueries",
    }
)
"""Class of each query family that a workload file and ``--queries`` can name."""
