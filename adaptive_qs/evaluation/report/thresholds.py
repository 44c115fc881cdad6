"""Where the verdict's words change, all in one place; every one is printed in the report."""

from __future__ import annotations

from typing import Literal

Grade = Literal["good", "fair", "poor", "plain"]

CLOSE, USABLE = 0.15, 0.5
"""Of the way from the error of a fresh sample to that of independent columns: up to the first
"close", up to the second "usable", beyond it "far"."""
CLOSE_ALONE, USABLE_ALONE = 0.02, 0.10
"""The same for L1 errors beyond a fresh sample where independence says nothing: workloads of
single columns."""
LOST_COLUMN = 0.05
"""Total variation of a single column, beyond that of a fresh sample, from which it is named."""
CLEAR_V = 0.2
"""Cramér's V of the true table from which an association is clear."""
KEPT_V = 0.1
"""Difference of V up to which a clear association is kept."""
LOST_PART = 0.5
"""A clear association is lost where less than this part of its V is left."""
SMALL_LOSS, LARGE_LOSS = 0.1, 0.3
"""Parts of a model's gain over chance that are lost: up to the first small, beyond the second
large."""
TELLTALE = 0.75
"""Area under the curve from which a classifier tells the tables apart with ease."""
BROKEN = 0.01
"""Share of synthetic rows, beyond that of the true ones, from which a broken rule is named."""

DEFINITIONS = (
    f"Marginals are close up to {CLOSE:.0%} of the way from the error of a fresh sample to that of "
    f"independent columns, usable up to {USABLE:.0%}, and far beyond that. For workloads of single "
    f"columns the limits are errors of {CLOSE_ALONE} and {USABLE_ALONE} above a fresh sample.",
    f"A single column is named from a total variation of {LOST_COLUMN:.0%} of the rows above that "
    "of a fresh sample.",
    f"An association is clear from a Cramér's V of {CLEAR_V} in the true table, kept if V differs "
    f"by at most {KEPT_V}, lost if less than {LOST_PART:.0%} of it is left, and made up if V is "
    f"at least {CLEAR_V} in the synthetic table and less than {LOST_PART:.0%} of that in the true "
    "one.",
    f"A model's loss is the part of its gain over chance that training on synthetic rows takes "
    f"away: small up to {SMALL_LOSS:.0%}, large beyond {LARGE_LOSS:.0%}.",
    f"Rules are named where at least {BROKEN:.0%} more of the synthetic rows break them.",
)
