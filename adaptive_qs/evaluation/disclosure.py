"""What rows disclose to somebody who knows some columns: unique rows, and guesses of the others."""

import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import shown, split_names
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Facts, Finding, Table, named
from adaptive_qs.evaluation.rows import count_combinations, none_drawn
from adaptive_qs.evaluation.scale import DEVIATIONS
from adaptive_qs.evaluation.tables import Cells, Counts, JointCodes, Numbers
from adaptive_qs.pages.words import combination, count, counted, quoted, share, short

SMALL = 2, 3, 5, 10
"""Numbers of rows k: combinations of fewer are counted."""
_DISTANCE = re.compile("distance|closest|nearest|dcr|nndr", re.IGNORECASE)


def refuse_distance(text: str) -> None:
    """Raise InputError if a text asks for distances to the closest record."""
    if _DISTANCE.search(text):
        raise InputError(
            "Distances to the closest record are not reported: short ones can be chance, and long "
            "ones stop no inference. Name columns that somebody may know with --disclose."
        )


def parse_disclosed(text: str, names: Sequence[str]) -> Clique:
    """Return the positions of the columns that a text such as "age, sex, district" names."""
    found = dict.fromkeys(split_names(text))
    for name in found:
        if name not in names:
            refuse_distance(name)
            raise InputError(f"disclose names {shown(name)}, which is no column. Check the names.")
    return tuple(map(names.index, found))


@dataclass(frozen=True)
class Agreement:
    """Shares of the combinations of one table that another table has.

    ``whole`` is of both tables. ``half`` is expected of a random half of the true rows and at most
    as many synthetic rows, and ``control`` of the same half and as many of the other true rows.
    """

    whole: float
    half: float
    control: float


@dataclass(frozen=True)
class Guess:
    """How often the value of a column is guessed right from the known columns.

    The figures are shares of the true rows.

    A guess is the most frequent value of the synthetic rows with this combination, of all other
    true rows with it (``control``), or of all true rows. ``excess`` is the first less the second,
    and ``deviation`` its standard deviation: rows of one combination are guessed alike, so that the
    squares of their sums add up.
    """

    column: str
    synthetic: float
    control: float
    most_frequent: float
    excess: float
    deviation: float


@dataclass(frozen=True)
class Disclosure:
    """What rows disclose to somebody who knows some columns; owner only.

    Attributes:
        columns: which are known.
        combinations: number of those that occur, in the true and in the synthetic table.
        small: each k with the rows of either table in combinations of fewer than k rows.
        unique: unique synthetic rows whose combination is that of a unique true row.
        true_found, synthetic_found: combinations of one table that occur in the other one.
        guesses: of the other columns, the largest excess first.
    """

    columns: tuple[str, ...]
    combinations: tuple[int, int]
    small: tuple[tuple[int, int, int], ...]
    unique: Agreement
    true_found: Agreement
    synthetic_found: Agreement
    guesses: tuple[Guess, ...]


def find_disclosure(joint: JointCodes, columns: Clique) -> Disclosure:
    """Count the combinations of some columns in both tables, and guess the other columns."""
    cells, true, made = count_combinations(joint, columns)
    n, m, names = int(true.sum()), int(made.sum()), joint.pair.domain.names
    half, other = n // 2, min(n - n // 2, m)
    draws = (true, half, n), (made, other, m), (true, other, n)
    a, b, c = (_one(*draw) for draw in draws)
    both = a * _one(true - 1, other, n - half)
    once = true == 1, made == 1
    unique = Agreement(_part(once[0] & once[1], once[1]), _part(a * b, b), _part(both, c))
    a, b, c = (1 - none_drawn(*draw) for draw in draws)
    both, shared = a + c - (1 - none_drawn(true, half + other, n)), (true > 0) & (made > 0)
    found = Agreement(_part(shared, true > 0), _part(a * b, a), _part(both, a))
    back = Agreement(_part(shared, made > 0), _part(a * b, b), _part(both, c))
    small = ((k, int(true[true < k].sum()), int(made[made < k].sum())) for k in SMALL)
    guesses = [_guess_column(names[k], cells, joint.codes[k].astype(np.int64), true)
               for k in range(len(names)) if k not in columns]  # fmt: skip
    occupied = int(np.count_nonzero(true)), int(np.count_nonzero(made))
    return Disclosure(
        tuple(names[k] for k in columns), occupied, tuple(small), unique, found, back,
        tuple(sorted(guesses, key=lambda g: -g.excess)),
    )  # fmt: skip


def _one(some: Counts, drawn: int, rows: int) -> Numbers:
    """Return the chance that exactly one of some rows is among those drawn."""
    return some * (drawn / rows) * none_drawn(some - 1, drawn - 1, rows - 1)


def _part(some: NDArray[Any], of: NDArray[Any]) -> float:
    return float(some.sum() / of.sum()) if of.any() else math.nan


def _guess_column(name: str, cells: Cells, codes: Cells, true: Cells) -> Guess:
    """Guess a column of the true rows, each from the synthetic and from the other true rows.

    Args:
        name: of the column.
        cells: combination of the known columns in every row of both tables, the true ones first.
        codes: of the column in these rows.
        true: number of true rows with each combination.
    """
    n, size, distinct = int(true.sum()), int(codes.max()) + 1, len(true)
    known, values = cells[:n], codes[:n]

    def hit(scores: Cells) -> NDArray[np.bool_]:
        return np.asarray(size - 1 - scores % size == values)

    made = _best_scores(cells[n:], codes[n:], distinct, size)[0]
    made[made < size] = _best_scores(0 * cells[n:], codes[n:], 1, size)[0]
    right = hit(made[known]).astype(float)
    alike, whole = (
        hit(best) & (best - size > second)  # without the row itself
        for best, second in (_best_scores(known, values, distinct, size)[:, known],
                             _best_scores(0 * known, values, 1, size)[:, 0 * known])
    )  # fmt: skip
    control = np.where(true[known] == 1, whole, alike)
    apart, most = right - control, np.bincount(values).max() / n
    deviation = math.sqrt(float((np.bincount(known, apart) ** 2).sum())) / n
    return Guess(name, float(right.mean()), float(control.mean()), float(most),
                 float(apart.mean()), deviation)  # fmt: skip


def _best_scores(cells: Cells, codes: Cells, distinct: int, size: int) -> Cells:
    """Return the best and the second best score of a code in each cell, shape (2, distinct).

    A score is the number of rows times ``size``, plus ``size`` − 1 − code: ties go to the first.
    """
    keys, rows = np.unique(cells * size + codes, return_counts=True)
    cell, scores = keys // size, rows * size + size - 1 - keys % size
    best = np.full((2, distinct), size - 1)
    np.maximum.at(best[0], cell, scores)
    others = scores < best[0][cell]
    np.maximum.at(best[1], cell[others], scores[others])
    return best


class DisclosureCheck(Check):
    """What somebody who knows some columns of a person can learn; it has no grade."""

    name, title, shown, first = "disclosure", "Disclosure", "always", True

    def measure(self, comparison: Comparison) -> Disclosure | None:
        known = tuple(comparison.disclose)
        return find_disclosure(comparison.joint, known) if known else None

    def judge(self, facts: Disclosure | None, evaluation: Any) -> Finding | None:
        """Say how many rows are unique, and of which columns synthetic rows reveal more."""
        if facts is None:
            return None
        rows, unique = evaluation.comparison.rows, facts.small[0][1:]
        single = [f"{share(k / n)} of the {of} rows" for k, n, of in
                  zip(unique, rows, ("true", "synthetic"))]  # fmt: skip
        clear = [f"{quoted(g.column)} ({share(g.synthetic)} right, {share(g.control)})"
                 for g in facts.guesses if g.excess > DEVIATIONS * g.deviation]  # fmt: skip
        text = f"{' and '.join(single)} are unique by {combination(facts.columns)}. "
        text += "Some columns are" if clear else "No other column is"
        text += " guessed better from synthetic rows than from other true rows, beyond chance"
        text += f"{': ' * bool(clear)}{named(clear)}."
        return Finding(*self.word_for(facts), text, figures=_disclosure_figures(facts, rows))


def _disclosure_figures(facts: Disclosure, rows: tuple[int, int]) -> tuple[Facts | Table, ...]:
    (true, made), number = facts.combinations, checks.number
    lines = (
        ("known columns", f"{combination(facts.columns)}: {counted(true, 'combination')} in the "
         f"true table, {made:,} in the synthetic one. Numbers count by their bins, and a missing "
         "value is a value"),
        ("unique rows", "A row is unique if no other row of its table has its combination. Who "
         "knows these columns of a person can single out a unique true row. A unique synthetic row "
         "belongs to nobody"),
        ("combinations", "A combination in both tables does not show that a row was copied. Two "
         "halves of the true table share some (control rows), and half of the synthetic table "
         "should share about as many"),
        ("guesses", "A guess that other true rows allow, too, reveals what holds for everybody. "
         "Only the excess can come from the row itself. Other attacks can have a larger one"),
        ("privacy", "No figure here measures it. The promise of the release bounds every attack"),
    )  # fmt: skip
    heads = ("true rows", count), ("share", share), ("synthetic rows", count), ("share", share)
    small = Table(
        "Rows in combinations of fewer than k rows",
        (number("k"), *(number(*head) for head in heads)),
        [(k, true, true / rows[0], made, made / rows[1]) for k, true, made in facts.small],
    )
    kinds = ["whole tables", "half of the rows", "control rows"]
    shared = Table(
        "Combinations in both tables: of all rows; of half of the true rows and as many synthetic "
        "rows; of the two halves of the true rows",
        (checks.Column("share of", partial(short, longest=99)), *(number(h, share) for h in kinds)),
        [("unique synthetic rows with a unique true row's combination", *astuple(facts.unique)),
         ("true combinations that are synthetic ones, too", *astuple(facts.true_found)),
         ("synthetic combinations that are true ones, too", *astuple(facts.synthetic_found))],
    )  # fmt: skip
    kinds = ["synthetic rows", "other true rows", "most frequent value", "excess", "deviation"]
    guessed = Table(
        "True rows whose value is guessed right from the known columns, by what the guess is from",
        (checks.Column("column"), *(number(head, share) for head in kinds)),
        [*map(astuple, facts.guesses)],
    )  # fmt: skip
    return Facts(lines), small, shared, *[guessed][: len(facts.guesses)]
