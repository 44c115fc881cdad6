"""The page for people inside a release bundle, made only from what the bundle holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from adaptive_qs.pages.rendering import render
from adaptive_qs.release.alone import alone_columns
from adaptive_qs.release.page.budget import budget_parts
from adaptive_qs.release.page.combinations import (
    UNMEASURED_SHOWN,
    pair_map,
    partners,
    round_rows,
    workload_marginals,
)
from adaptive_qs.release.page.noise import Z95
from adaptive_qs.release.page.singles import error_bars, single_columns
from adaptive_qs.release.prose import TELLING_EPSILON

if TYPE_CHECKING:
    from adaptive_qs.release.bundle import Bundle

COLUMNS_SHOWN = 24
MARGINALS_SHOWN = 40
ROUNDS_SHOWN = 200

SECTIONS = (
    ("promise", "What is promised"),
    ("budget", "What the budget went into"),
    ("columns", "Single columns, with error bars"),
    ("combinations", "Combinations of columns"),
    ("rounds", "How the rounds went"),
    ("facts", "Everything that is told of the rows"),
    ("use", "How to use the release"),
    ("versions", "Versions and settings"),
)


def release_page(bundle: Bundle) -> str:
    """One self-contained HTML file; the same bundle gives the same text.

    Only the members of the bundle enter, so it may be shared wherever the bundle may.
    """
    model = bundle.model()
    manifest = bundle.manifest
    total = max(model.total, 1.0)
    columns = single_columns(bundle.schema, model, total)
    shown = [i for i, c in enumerate(columns) if c.std is not None][:COLUMNS_SHOWN]
    marginals = workload_marginals(bundle, model, total)
    measured = [m for m in marginals if m.measured]
    others = partners(bundle)
    mapped = sorted(sorted(others, key=lambda i: (-len(others[i]), i))[:COLUMNS_SHOWN])
    return render(
        "release.html",
        ("adaptive_qs.release",),
        manifest=manifest,
        factor=math.exp(manifest.epsilon) if manifest.epsilon <= TELLING_EPSILON else None,
        total=model.total,
        total_std=math.sqrt(1 / model.precision(())),
        parts=budget_parts(manifest),
        columns=columns,
        cards=[(columns[i], error_bars(bundle.schema.columns[i], model, i)) for i in shown],
        marginals=measured[:MARGINALS_SHOWN],
        measured=len(measured),
        unmeasured=[m for m in marginals if not m.measured],
        most_unmeasured=UNMEASURED_SHOWN,
        pairs=pair_map(bundle, model, total, mapped) if len(mapped) > 1 else None,
        alone=alone_columns(bundle),
        rounds=round_rows(bundle),
        rounds_shown=ROUNDS_SHOWN,
        z95=Z95,
        sections=SECTIONS,
    )
