"""From noisy marginals to rows: pure post-processing."""

from __future__ import annotations

from typing import Any

from adaptive_qs.arguments import Registry

DEFAULT_GENERATOR = "loglinear"
GENERATORS: Registry[Any] = Registry(
    {DEFAULT_GENERATOR: "adaptive_qs.generate.rows:synthesize_rows"}
)
"""The generators that ``--generator`` and the settings of a release can name, each called as
:func:`~adaptive_qs.generate.rows.synthesize_rows`."""
