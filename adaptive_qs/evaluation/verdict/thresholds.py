"""Where the verdict's words change, all in one place; every one is printed in the report."""

from __future__ import annotations

from typing import Literal

from adaptive_qs.evaluation.verdict.fresh import STEP_ERROR

Grade = Literal["good", "fair", "poor", "plain"]

CLOSE, USABLE = 0.15, 0.5
"""Of the way from the error of a fresh sample to that of independent columns: up to the first
"close", up to the second "usable", beyond it "far"."""
CLOSE_ALONE, USABLE_ALONE = 0.02, 0.10
"""The same for L1 errors beyond a fresh sample where independence says nothing: workloads of
single columns."""
FEW, SPARSE = 5, 0.5
"""A cell holds few true rows below the first; where more than the second part of the rows lies in
such cells, chance decides most of every error and there is no scale."""
LOST_COLUMN = 0.05
"""Total variation of a single column, beyond that of a fresh sample, from which it is named."""
LARGE_SHIFT = 0.5
"""Standard deviations by which the mean of an ordered column must move to be named (a medium effect
after Cohen 1988), beyond three of what chance moves it: √(1/n + 1/m)."""
CLEAR_V = 0.2
"""Cramér's V of the true table from which an association is clear."""
KEPT_V = 0.1
"""Difference of V up to which a clear association is kept."""
MOST_LOST = 0.25
"""Part of the clear associations beyond which losing them is poor."""
LEAST_EFFECT = 0.1
"""Cohen's w from which an association below ``CLEAR_V`` is weak, what he calls a small effect;
below it is none."""
WEAK_LOST = 0.1
"""Part of the weak associations beyond which losing them, or as many more that only the synthetic
table has, is more than close."""
LEAST_OFF, LEAST_OFF_PART = 10, 0.005
"""Rows, and part of the rows, that must lie off the most frequent value of both columns: what rests
on fewer is neither clear nor only in the synthetic table, however large its V."""
LOST_PART = 0.5
"""An association is lost where less than this part of its V is left."""
DEVIATIONS = 5
"""Standard deviations by which squares of V must differ; by Cantelli's inequality chance does that
with probability 1/26 whatever the distribution, and 3e-7 where it is normal."""
GONE = 0.9
"""Of the way from the error of a fresh sample to that of independent columns, from which a marginal
or a part of the queries is as far off as if its columns were independent."""
UNSEEN = 0.05
"""Synthetic rows with two values that no true row has together, beyond those of new true rows, from
which it is said."""
DOUBTFUL = 3
"""Standard deviations of a fresh sample's squared error beyond which queries that are no closer
than those of independent columns are not close, if these are further off than a fresh sample at
all; beyond ``DEVIATIONS`` they are far, if these are clearly so."""
COPY_FACTOR, COPIED = 2, 0.05
"""Rows may be copied where the share of synthetic rows that equal a true row which occurs once is
larger than the first times what is expected, by the second. A fresh row equals one with
probability 2 f₂/N (Good and Turing; f₂ rows occur twice), and rows that occur twice alone bring one
half of the true table to f₂/N matches in the other: hence 2."""
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
    "columns, and where independent columns can hardly be told from a fresh sample, the limits are "
    f"errors of {CLOSE_ALONE} and {USABLE_ALONE} above a fresh sample. What is no closer "
    "than independent columns, and further than chance takes a fresh sample, is far in any case.",
    "These limits, and that of single columns, are never below what chance may add: three standard "
    "deviations, which are between 1.8 and 3 times √(1/n + 1/m) for tables of n and m rows, and "
    f"{STEP_ERROR:.0%} of the error of a fresh sample, which is an estimate. There is no scale "
    f"where more than {SPARSE:.0%} of the true rows lie in cells with fewer than {FEW} of them.",
    f"A single column is named from a total variation of {LOST_COLUMN:.0%} of the rows above that "
    "of a fresh sample.",
    f"A moved mean is named from {LARGE_SHIFT} standard deviations of the true column.",
    f"An association is clear from a Cramér's V of {CLEAR_V} in the true table, kept if V differs "
    f"by at most {KEPT_V}, lost if less than {LOST_PART:.0%} of it is left, and only in the "
    f"synthetic table if V is at least {CLEAR_V} there and less than {LOST_PART:.0%} of that in "
    f"the true one; always by more than {DEVIATIONS} standard deviations. What rests on fewer than "
    f"{LEAST_OFF} rows, or {LEAST_OFF_PART:.1%} of them, off the most frequent value of either "
    f"column counts nowhere. Losing more than {MOST_LOST:.0%} of the clear ones is poor.",
    f"An association is weak if V is below {CLEAR_V}, Cohen's w (V times the root of the smaller "
    f"number of values less one) at least {LEAST_EFFECT}, and V so large that its loss could be "
    "told from chance. Associations are not close where one column lost all of its own, where more "
    f"than {WEAK_LOST:.0%} of the weak ones are lost, or where the synthetic table has more than "
    f"{WEAK_LOST:.0%} of all of them in new weak ones.",
    f"A marginal is as far off as independent columns from {GONE:.0%} of the way on, if these are "
    f"further off than a fresh sample by {CLOSE_ALONE} and by what chance may add, here "
    f"{DEVIATIONS} standard deviations. Where a marginal is, the marginals are not close.",
    f"Queries of several columns have the limits of marginals, up to {CLOSE:.0%} and {USABLE:.0%} "
    f"of the way, never below what chance may add: {DEVIATIONS} standard deviations of the squared "
    "error of a fresh sample. They are not close where a part of them is as far off as independent "
    f"columns, or where all together are, by more than {DOUBTFUL} standard deviations.",
    f"Rows with unseen pairs are named where they are {UNSEEN:.0%} of the rows more than new true "
    f"rows would have, and {DEVIATIONS} standard deviations more.",
    "The first word is never kinder than the worst of the findings on marginals, queries, single "
    "columns, associations and unseen pairs, nor than an attack that gains more than the promise "
    "allows; it is “close” only where the marginals have a scale.",
    f"Rows may be copied where the share of synthetic rows that equal a true row which occurs once "
    f"is {COPIED:.0%} of the rows above {COPY_FACTOR} times what is expected.",
    f"A model's loss is the part of its gain over chance that training on synthetic rows takes "
    f"away: small up to {SMALL_LOSS:.0%}, large beyond {LARGE_LOSS:.0%}.",
    f"Rules are named where at least {BROKEN:.0%} more of the synthetic rows break them.",
)
