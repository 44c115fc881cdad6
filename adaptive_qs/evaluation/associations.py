"""Associations and correlations of columns in both tables, and which are lost or new."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Grade, Word
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import Margins, PairCounts, PairSums
from adaptive_qs.pages.words import combination, counted, decimals, signed

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

CLEAR_V, KEPT_V, LOST_PART = 0.2, 0.1, 0.5
"""Least Cramér's V of a strong association, difference of V up to which it is kept, and part of V
below which it is lost."""
LEAST_EFFECT = 0.1
"""Least Cohen's w of a weak association: a small effect (Cohen 1988)."""
LEAST_OFF, LEAST_OFF_PART = 10, 0.005
"""Number and part of the rows off the most frequent value of both columns on which an association
must rest."""
MOST_LOST, WEAK_LOST = 0.25, 0.1
"""Parts of the strong, and of the weak associations, that can be lost."""

# Association matrices.
#
# Cramér's V is bias-corrected (Bergsma 2013, "A bias-correction for Cramér's V and Tschuprow's T",
# J. Korean Stat. Soc. 42): N rows of independent attributes with r and c values have
# χ²/N = (r−1)(c−1)/(N−1) on average, not 0; that is taken off, and r and c are corrected alike.
# r and c count the values that occur, each table for itself.


@dataclass(frozen=True, eq=False)
class Association:
    """Association matrices of both tables; owner only.

    Matrices have shape (attributes, attributes) and are symmetric. V is from 0 (independent) to 1
    (one determines the other), 0 for an attribute with a single value, and 1 on the diagonal.

    Attributes:
        names: of the attributes.
        cramers_v: of the true and of the synthetic table, bias-corrected.
        influence: N times the variance of φ² over samples, of the true and of the synthetic table.
    """

    names: tuple[str, ...]
    cramers_v: tuple[Matrix, Matrix]
    influence: tuple[Matrix, Matrix]

    @property
    def differences(self) -> dict[str, float]:
        """Mean and maximum of the absolute differences of V, over all pairs."""
        true, made = self.cramers_v
        upper = np.abs((made - true)[np.triu_indices(len(true), 1)])
        mean, largest = (float(upper.mean()), float(upper.max())) if upper.size else (0.0, 0.0)
        return {"mean_difference": mean, "max_difference": largest}


def associate(counts: PairCounts) -> Association:
    """Return the association matrices of two tables whose pairs have been counted."""
    rows = (counts.joint.true_rows, counts.joint.rows - counts.joint.true_rows)
    names = counts.joint.pair.domain.names
    matrices = np.empty((2, 2, len(names), len(names)))
    matrices[:] = np.eye(len(names))
    for table, (total, margins, sums) in enumerate(zip(rows, counts.margins, counts.sums)):
        values = [int(np.count_nonzero(margin)) for margin in margins]
        for (i, j), pair in sums.items():
            v = cramers_v(pair, total, values[i], values[j])
            matrices[:, table, i, j] = matrices[:, table, j, i] = v, pair.influence
    return Association(names, *((true, synthetic) for true, synthetic in matrices))


def cramers_v(pair: PairSums, rows: int, r: int, c: int) -> float:
    """Return Bergsma's Ṽ = √(φ̃² / min(r̃−1, c̃−1)), 0 if an attribute has one value.

    The two attributes have r and c values that occur in the rows.
    """
    if min(r, c) < 2:
        return 0.0
    phi = max(0.0, pair.squares - 1 - (r - 1) * (c - 1) / (rows - 1))
    least = min(k - 1 - (k - 1) ** 2 / (rows - 1) for k in (r, c))
    return float(min(1.0, np.sqrt(phi / least))) if least > 0 else 0.0


LEAST_ROWS = 4
"""Number of rows below which the variance of χ² is not defined."""


class Chance:
    """How far chance takes the Cramér's V of each two columns of one table.

    Matrices are of shape (columns, columns).

    Attributes:
        spread: pairs of which enough rows lie off the most frequent value of both columns.
    """

    def __init__(self, margins: Margins, influence: Matrix) -> None:
        self._influence = influence  # of independent columns: 4 (r − 1)(c − 1)/N on average
        occupied = [counts[counts > 0] for counts in margins]
        self._rows = rows = max(int(margins[0].sum()), 2)
        off = np.array([counts.sum() - counts.max() for counts in occupied])
        spread = off >= max(LEAST_OFF, LEAST_OFF_PART * rows)
        self.spread = np.outer(spread, spread)
        values = np.array([len(counts) for counts in occupied], dtype=np.float64)
        self._freedom = np.outer(values - 1, values - 1)
        corrected = values - 1 - (values - 1) ** 2 / (rows - 1)
        self._least = np.minimum.outer(corrected, corrected)
        self._variance = np.maximum(chi_square_variance(occupied), 0.0) / rows**2

    def deviation(self, v: Matrix | None = None) -> Matrix:
        """Return the standard deviations of V² = φ²/k, with k as Bergsma corrects it.

        The variance is that of independent columns plus that of the strength of the association:
        by the delta method, and as for a correlation at least 4 φ²/N. A few rows in a cell that
        should be empty make it many times as large. V is None for independent columns.
        """
        defined = self._least > 0
        least = np.where(defined, self._least, 1.0)
        more = (0.0 if v is None else self._influence) - 4 * self._freedom / self._rows
        strength = np.maximum(more, 0.0 if v is None else 4 * v**2 * least) / self._rows
        deviation = np.sqrt(self._variance + strength) / least
        return np.where(defined, deviation, np.inf)

    def present(self, v: Matrix, other: Self) -> Mask:
        """Return the pairs whose association another table could not lose unseen.

        Their Cohen's w = V √k, the distance from independence whatever the number of values (Cohen
        1988, "Statistical Power Analysis for the Behavioral Sciences", chapter 7), is not small.
        """
        effect = v * np.sqrt(np.maximum(self._least, 0.0))
        unseen = np.hypot(self.deviation(v), other.deviation())
        found = self.spread & (effect >= LEAST_EFFECT) & (v**2 > DEVIATIONS * unseen)
        return np.asarray(found)


def chi_square_variance(margins: Sequence[NDArray[np.integer]]) -> Matrix:
    """Return the exact variance of χ² over all permutations of one column against another.

    Dawson 1954, "A simplified expression for the variance of the χ²-function on a contingency
    table", Biometrika 41. With few rows in a cell it is far from 2 (r − 1)(c − 1).
    ``margins`` are counts of the values of every column, all above 0, of one sum N. Variances have
    shape (columns, columns); they are infinite if N is below ``LEAST_ROWS``.
    """
    rows = int(margins[0].sum())
    if rows < LEAST_ROWS:
        return np.full((len(margins), len(margins)), np.inf)
    values = np.array([len(counts) for counts in margins], dtype=np.float64)
    inverse = np.array([float((1 / counts).sum()) for counts in margins])
    spare = (rows - values) * (values - 1) / (rows - 1)
    rare = (rows * inverse - values**2) / (rows - 2)
    both = 2 * rows / (rows - 3) * np.outer(spare - rare, spare - rare)
    return np.asarray(both + rows**2 / (rows - 1) * np.outer(rare, rare))


# Which associations of the true table are lost, and which are new.

MOST_CHANGES = 10
"""Maximum number of changes that are listed."""


@dataclass(frozen=True)
class AssociationChange:
    """Two columns, with their Cramér's V in the true and in the synthetic table."""

    names: tuple[str, str]
    true: float
    synthetic: float


Changes = tuple[AssociationChange, ...]


@dataclass(frozen=True, eq=False)
class AssociationChanges:
    """How the associations of two attributes changed; the strongest first.

    Attributes:
        clear: number of strong ones in the true table; each is kept, weaker, stronger or lost.
        kept, weaker, stronger: their numbers.
        lost: strong ones of which little is left.
        made_up: strong ones that only the synthetic table has.
        weak: number of weak ones in the true table.
        weak_lost, weak_made_up: the same of weak ones.
        unconnected: attributes that are associated with others in the true table only.
        largest: the pairs with the largest differences, without those in which too few rows make
            the larger V.
        blind: whether chance may explain even a strong association, in most pairs.
    """

    clear: int
    kept: int
    weaker: int
    stronger: int
    lost: Changes
    made_up: Changes
    weak: int
    weak_lost: Changes
    weak_made_up: Changes
    unconnected: tuple[str, ...]
    largest: Changes
    blind: bool


def association_changes(
    association: Association, both: tuple[Margins, Margins]
) -> AssociationChanges:
    """Compare the associations of both tables, by Cramér's V.

    An association is strong, weak, lost or new only if chance does not explain it: V² must exceed
    0, or that of the other table, by ``DEVIATIONS`` standard deviations. It must rest on some rows
    off the most frequent value of both columns. A weak one must be strong enough that its loss
    could be seen.
    """
    names, (true, made) = association.names, association.cramers_v
    ours, theirs = map(Chance, both, association.influence)
    deviation = np.hypot(ours.deviation(true), theirs.deviation(made))

    def half_gone(more: Matrix, less: Matrix) -> Mask:
        clearly = more**2 - less**2 > DEVIATIONS * deviation
        return clearly & (less < LOST_PART * more)

    def ordered(pairs: Mask, by: Matrix) -> Changes:
        first, second = np.nonzero(np.triu(pairs, 1))
        order = np.argsort(-by[first, second], kind="stable")
        return tuple(
            AssociationChange((names[i], names[j]), float(true[i, j]), float(made[i, j]))
            for i, j in zip(first[order], second[order])
        )

    hidden = DEVIATIONS * np.maximum(ours.deviation(), theirs.deviation()) >= CLEAR_V**2
    strong = (true >= CLEAR_V) & (true**2 > DEVIATIONS * ours.deviation())
    clear = np.triu(strong & ours.spread, 1)
    lost, new = half_gone(true, made), half_gone(made, true)
    kept = np.abs(made - true) <= KEPT_V
    present, showing = ours.present(true, theirs), theirs.present(made, ours)
    faint = np.triu(present & (true < CLEAR_V), 1)
    spread = np.where(true >= made, ours.spread, theirs.spread)
    size = np.abs(np.where(spread, made - true, 0.0))
    others = ~np.eye(len(names), dtype=np.bool_)
    left = present & ~lost | showing
    cut_off = (present & others).any(axis=1) & ~(left & others).any(axis=1)
    return AssociationChanges(
        clear=int(clear.sum()), kept=int((clear & kept).sum()),
        weaker=int((clear & ~kept & ~lost & (made < true)).sum()),
        stronger=int((clear & ~kept & (made > true)).sum()), lost=ordered(clear & lost, true),
        made_up=ordered((made >= CLEAR_V) & theirs.spread & new, made), weak=int(faint.sum()),
        weak_lost=ordered(faint & lost, true),
        weak_made_up=ordered(showing & (made < CLEAR_V) & new, made),
        unconnected=tuple(names[i] for i in np.flatnonzero(cut_off)),
        largest=ordered(size >= 0.01, size)[:MOST_CHANGES],
        blind=bool(others.any() and hidden[others].mean() > 0.5),
    )  # fmt: skip


class AssociationsCheck(Check):
    """How the associations changed: strong ones, all of a column, weak ones."""

    name, title, about = "association", "How columns depend on each other", "associations"
    uses = ("pairs of columns",)
    rules = (
        Word("losses", "poor", lambda a: len(a.lost) > MOST_LOST * a.clear),
        Word(
            "some lost",
            "fair",
            lambda a: a.lost or a.unconnected or len(a.weak_lost) > WEAK_LOST * a.weak,
        ),
        Word(
            "some new",
            "fair",
            lambda a: a.made_up or len(a.weak_made_up) > WEAK_LOST * (a.clear + a.weak),
        ),
        Word("too sparse", "plain", lambda a: a.blind),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> Association:
        return associate(comparison.pairs)

    def judge(self, facts: Association, evaluation: Any) -> Finding:
        """Name the associations that are lost or new."""
        found = association_changes(facts, evaluation.pair.margins)
        caps: dict[str, Grade] = {}
        if found.blind:
            caps |= {"pairs of columns": "plain", "single rows": "plain"}
        workload = [set(error.attributes) for error in evaluation.workload.per_clique]
        changed = (set(change.names) for change in (*found.lost, *found.made_up))
        if any(names <= each for names in changed for each in workload):
            caps["the requested counts"] = "fair"
        return Finding(
            *self.word_for(found), dependence_sentence(found, evaluation.comparison.rows),
            figures=_figures(facts, found),
            advice=_advise(found, evaluation), caps=caps,
        )  # fmt: skip

    def as_json(self, facts: Association) -> Mapping[str, Any]:
        """Return the matrices, with mean and maximum of their differences."""
        matrices = dict(zip(("true", "synthetic"), (v.tolist() for v in facts.cramers_v)))
        return {self.name: {"names": facts.names, "cramers_v": {**facts.differences, **matrices}}}


def dependence_sentence(found: AssociationChanges, rows: tuple[int, int]) -> str:
    """Describe the changes: strong associations, unconnected columns, weak associations."""
    text = "No two columns of the true table depend strongly on each other."
    if found.blind:
        text = f"The columns have too many codes for {min(rows):,} rows: chance can explain most "
        text += "associations, so their loss would not be seen."
    if found.clear:
        lost = checks.named([combination(change.names) for change in found.lost])
        text = (
            f"{f'{text} ' if found.blind else ''}Strong associations between two columns: "
            f"{found.kept:,} of {found.clear:,} kept, {found.weaker:,} weaker, "
            f"{found.stronger:,} stronger, {len(found.lost):,} lost{f': {lost}' if lost else ''}."
        )
    if found.unconnected:
        verb = "is" if len(found.unconnected) == 1 else "are"
        text += f" {checks.format_names(found.unconnected)} {verb} independent of all "
        text += "other columns in the synthetic table."
    if found.weak_lost:
        names = checks.named(_with_sizes(found.weak_lost), most=checks.FEW_NAMED)
        text += f" Weak associations: {len(found.weak_lost):,} of {found.weak:,} lost: {names}."
    names = checks.named([combination(change.names) for change in found.made_up])
    new, reason = [names] if names else [], ""
    if amount := len(found.weak_made_up):
        (largest,) = _with_sizes(found.weak_made_up[:1])
        phrase = counted(amount, "weak association")
        new.append(f"{phrase}, {'the largest ' if amount > 1 else ''}{largest}")
        reason = " Such associations arise if two columns were not measured together."
    if new:
        text += f" Only in the synthetic table: {', and '.join(new)}.{reason}"
    return text


def _with_sizes(changes: Sequence[AssociationChange]) -> list[str]:
    return [
        f"{combination(c.names)} (V {decimals(c.true)}, now {decimals(c.synthetic)})"
        for c in changes
    ]


def _advise(found: AssociationChanges, evaluation: Any) -> tuple[str, ...]:
    lost = [change.names for change in (*found.lost, *found.weak_lost)] + [*evaluation.scale.gone]
    if found.unconnected:
        names = checks.format_names(found.unconnected)
        return (f"To improve {names}, use coarser codes, fewer columns or a smaller workload.",)
    if lost:
        return (f"To improve {combination(lost[0])}, use coarser codes or a smaller workload.",)
    return ()


LISTED = 200
"""Maximum number of associations in a list of the page."""


def _figures(facts: Association, found: AssociationChanges) -> tuple[checks.Figure, ...]:
    if len(facts.names) < 2:
        return ()
    lists = (
        ("Largest changes of Cramér's V", found.largest, MOST_CHANGES),
        ("Associations that are lost", found.lost + found.weak_lost, 0),
        ("Associations only in the synthetic table", found.made_up + found.weak_made_up, 0),
    )
    return tuple(_change_table(*each) for each in lists if each[1])


def _change_table(caption: str, changes: Changes, printed: int) -> checks.Table:
    caption += f", the strongest of {len(changes):,}" * (len(changes) > LISTED)
    rows = [(c.names, c.true, c.synthetic, c.synthetic - c.true) for c in changes[:LISTED]]
    columns = (
        checks.COLUMNS, checks.number("true", decimals), checks.number("synthetic", decimals),
        checks.number("change", partial(signed, digits=3)),
    )  # fmt: skip
    return checks.Table(caption, columns, rows, printed)


CORRELATED, CHANGED = 3e7, 0.2
"""Number of cells above which only every k-th row is correlated, and difference of a rank
correlation from which on it is named."""


@dataclass(frozen=True)
class Correlation:
    """The correlations of two columns of numbers or dates, in the true and the synthetic table.

    Those by ranks are Spearman's, the others Pearson's.
    """

    names: tuple[str, str]
    true: float
    synthetic: float
    true_by_ranks: float
    synthetic_by_ranks: float
    changed: bool


class CorrelationsCheck(Check):
    """Whether the correlations of numbers are kept."""

    name, title, about, first = "correlations", "Correlations of numbers", "correlations", True
    uses, of_numbers = ("pairs of columns",), True
    rules = (
        Word("some changed", "fair", lambda found: any(c.changed for c in found)),
        Word("kept", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[Correlation, ...]:
        """Compare the correlations of columns of numbers and dates, sorted by change."""
        import pandas as pd

        pair, columns, found = comparison.pair, comparison.schema.columns, list[Matrix]()
        for table in (0, 1):
            amounts = {c.name: pair.find_amounts(c, table) for c in columns}
            frame = pd.DataFrame(amounts, range(comparison.rows[table]))
            frame = frame.astype(float).iloc[:: max(1, math.ceil(frame.size / CORRELATED))]
            pearson = (each.corr(min_periods=LEAST_OFF) for each in (frame, frame.rank()))
            found += [each.to_numpy() for each in pearson]
        deviation = DEVIATIONS * math.sqrt(sum(1 / rows for rows in comparison.rows))
        compared = []
        for i, j in zip(*np.nonzero(np.triu(~np.isnan(found[0]), 1))):
            plain, by_ranks, other, ranks = (float(np.nan_to_num(each[i, j])) for each in found)
            changed = abs(ranks - by_ranks) >= max(CHANGED, deviation * (1 - by_ranks**2))
            names = columns[i].name, columns[j].name
            both = Correlation(names, plain, other, by_ranks, ranks, changed)
            compared.append((-max(abs(other - plain), abs(ranks - by_ranks)), i, j, both))
        return tuple(each[-1] for each in sorted(compared, key=lambda each: each[:3]))

    def judge(self, facts: Sequence[Correlation], evaluation: Any) -> Finding | None:
        """Name the correlations that changed."""
        if not facts:
            return None
        moved = [f"{combination(c.names)} ({signed(c.true_by_ranks)}, now "
                 f"{signed(c.synthetic_by_ranks)})" for c in facts if c.changed]  # fmt: skip
        pairs = counted(len(facts), "pair")
        text = f"The rank correlations of {pairs} of numbers are kept."
        if moved:
            text = f"Rank correlations that changed, {len(moved):,} of {pairs} of numbers: "
            text += f"{checks.named(moved)}."
        heads = ("true", "synthetic", "by ranks: true", "synthetic")
        columns = (checks.COLUMNS, *(checks.number(head, signed) for head in heads))
        caption = "Correlations (Pearson) and rank correlations (Spearman), largest change first"
        figure = checks.Table(caption, columns, [astuple(c)[:5] for c in facts[:LISTED]])
        return Finding(*self.word_for(facts), text, figures=(figure,))
