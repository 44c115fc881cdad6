"""Membership-inference attacks on the released table, compared with the bound of its promise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import DataError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.promise import Promise, advantage_bound
from adaptive_qs.evaluation.tables import (
    MAX_DENSE_CELLS,
    TablePair,
    in_batches,
    ranked,
    row_numbers,
)
from adaptive_qs.machine import StepProgress, njit
from adaptive_qs.pages.words import decimals, significant
from adaptive_qs.table.coded import CodedTable

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

# Whether control rows were held out, or occur in the true table more often than fresh ones would.

MIN_ROWS = 16
"""Minimum number of true rows, and of control rows, for an attack."""
FALSE_ALARM = 1e-3
"""Maximum probability that rows which were held out are found to overlap."""


def check_control(true: CodedTable, control: CodedTable, seed: int) -> str | None:
    """Return a note if control rows occur in the true table more often than other true rows.

    As many random true rows are drawn. If the control rows were held out, both are independent
    draws from one population. Their numbers of matches among the other true rows are then binomial
    with one probability, and Fisher's exact one-sided test is wrong with probability 0.001 at most.

    Raises:
        DataError: the domains differ, a table has too few rows, or the control rows were not held
            out.
    """
    from scipy.stats import fisher_exact  # slow to import

    TablePair(true, control)
    if min(true.num_rows, control.num_rows) < MIN_ROWS:
        raise DataError(
            f"the true and the control table need at least {MIN_ROWS} rows each for an attack: "
            "hold out more"
        )
    columns = [np.concatenate(pair) for pair in zip(true.columns, control.columns)]
    ranks = ranked(row_numbers(columns, control.domain.sizes)[0])[0]  # equal for equal rows
    keys, held_out = np.split(ranks, [true.num_rows])
    shuffled = np.random.default_rng(seed).permutation(keys)
    drawn, base = np.split(shuffled, [min(control.num_rows, true.num_rows // 2)])
    found, others = (np.isin(rows, base) for rows in (held_out, drawn))
    matches = [[int(part.sum()), int((~part).sum())] for part in (found, others)]
    alarm = float(fisher_exact(matches, alternative="greater").pvalue) <= FALSE_ALARM
    complete = bool(np.isin(held_out, keys).all())
    if (alarm and complete) or np.array_equal(np.sort(keys), np.sort(held_out)):
        raise DataError(
            "every control row is a row of the true table. Use rows that were held out of it."
        )
    if alarm:
        return (
            f"the control table overlaps the true one: {found.mean():.1%} of its rows equal "
            f"others there, against {others.mean():.1%} by chance; attacks look weaker than they "
            "are"
        )
    if complete:
        return (
            "every control row is also a row of the true table, which is no mistake if few "
            "combinations of values exist: whether the rows were held out cannot be decided"
        )
    return None


# Advantage of an attack, with an interval that holds for all attacks together.


@dataclass(frozen=True)
class AttackScore:
    """The success of one attack.

    Attributes:
        attack: what it does, in a few words.
        advantage: true positive rate minus false positive rate at a threshold that other rows
            chose.
        lower, upper: ends of the interval of the advantage.
        auc: area under the curve of the attack's score.
    """

    attack: str
    advantage: float
    lower: float
    upper: float
    auc: float


@dataclass(frozen=True)
class Membership:
    """The attacks on a released table; owner only.

    Attributes:
        scores: of each attack, the strongest first.
        members, non_members: attacked rows of the true and of the control table.
        confidence: of all intervals together.
        bound: the largest advantage in the mean over releases; None if no promise is known.
        promise: that the bound follows from.
        limitations: for the reader, such as a control table that overlaps.
    """

    scores: tuple[AttackScore, ...]
    members: int
    non_members: int
    confidence: float
    bound: float | None
    promise: Promise | None
    limitations: tuple[str, ...]

    @property
    def certain(self) -> float:
        """The largest lower end: intervals hold together, so it is a certain gain."""
        return max(score.lower for score in self.scores)


def judge(
    attack: str, members: Array, non_members: Array, attacks: int, confidence: float
) -> AttackScore:
    """Measure the advantage of a score at a threshold that other targets chose.

    The first half of either kind chooses the threshold. The other half is then a random sample of
    rows to which a fixed rule is applied, so its counts of accused rows are binomial (members are
    drawn without replacement, which makes theirs less dispersed). Exact Clopper-Pearson intervals
    of both rates, each with error probability (1 - confidence) / (2 attacks), hold for all rates of
    all attacks together with `confidence` by Bonferroni; the difference of the ends brackets every
    advantage whenever they do. Scores are in random order, and higher for members.
    """
    from scipy.stats import binomtest
    from sklearn.metrics import roc_auc_score

    halves = len(members) // 2, len(non_members) // 2
    threshold = best_threshold(members[: halves[0]], non_members[: halves[1]])
    tested = members[halves[0] :], non_members[halves[1] :]
    accused = [binomtest(int((scores >= threshold).sum()), len(scores)) for scores in tested]
    level = 1 - (1 - confidence) / (2 * attacks)
    true, false = (rate.proportion_ci(level, method="exact") for rate in accused)
    truth = np.repeat([1, 0], [len(scores) for scores in tested])
    return AttackScore(
        attack=attack,
        advantage=float(accused[0].statistic - accused[1].statistic),
        lower=float(true.low) - float(false.high),
        upper=float(true.high) - float(false.low),
        auc=float(roc_auc_score(truth, np.concatenate(tested))),
    )


def best_threshold(members: Array, non_members: Array) -> float:
    """Return the least score that is accused; infinite if no accusation is better than none."""
    from sklearn.metrics import roc_curve

    truth = np.repeat([1, 0], [len(members), len(non_members)])
    fpr, tpr, thresholds = roc_curve(truth, np.concatenate([members, non_members]))
    return float(thresholds[np.argmax(tpr - fpr)])


# What the attacker sees, and what is attacked.


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows of four tables, one below the other, with codes that mean the same in each.

    Attributes:
        columns: one array for each attribute, over all rows: the synthetic ones, the reference
            rows, the members, the non-members. Codes in use are numbered 0, 1, ...
        sizes: codes in use, by attribute.
        rows: numbers of synthetic, reference, member and non-member rows.
    """

    columns: tuple[Codes, ...]
    sizes: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def from_parts(cls, parts: Sequence[tuple[CodedTable, Codes]]) -> Stack:
        """Stack the given rows of four tables."""
        columns, sizes = zip(
            *(
                ranked(np.concatenate([table.columns[i][rows] for table, rows in parts]))
                for i in range(len(parts[0][0].domain))
            )
        )
        return cls(columns, sizes, tuple(len(rows) for _, rows in parts))

    def split(self, values: NDArray, axis: int = 0) -> list[NDArray]:
        """Split values of all rows into synthetic rows, reference rows and targets."""
        return np.split(values, np.cumsum(self.rows[:2]), axis)


# Two attacks. Each gives a score for every target, shape (targets,): an estimate of the ratio of
# the densities of synthetic and reference rows there (DOMIAS, van Breugel et al. 2023).

CLOSENESS_ROWS = 40_000
"""Maximum number of synthetic and of reference rows that targets are compared with."""
MAX_CELLS = 16 * CLOSENESS_ROWS
"""Maximum number of their cells: of tables with more than 16 columns fewer rows are compared."""
_BLOCK = 250


def rows_compared(attributes: int) -> int:
    """Return how many synthetic and reference rows targets are compared with."""
    return max(1, min(CLOSENESS_ROWS, MAX_CELLS // attributes))


def closeness_scores(stack: Stack, workers: int = 1, progress: StepProgress | None = None) -> Array:
    """Return the log ratio of two kernel densities at each target.

    The kernel is 0.03^d with the number d of attributes that differ, so that equal and almost
    equal rows decide. It says nothing on its own: a synthetic row close to a true one is no breach.
    """
    from scipy.special import logsumexp

    log_kernel = math.log(0.03) * np.arange(len(stack.columns) + 1)
    most = rows_compared(len(stack.columns))
    codes = np.stack(stack.columns).astype(np.min_scalar_type(max(stack.sizes)))
    *known, targets = stack.split(codes, 1)
    tables = [np.ascontiguousarray(rows[:, :most]) for rows in known]

    def log_density(table: NDArray, start: int) -> Array:
        block = targets[:, start : start + _BLOCK]
        total = logsumexp(log_kernel, axis=1, b=_differences(block, table))
        return np.asarray(total - math.log(table.shape[1]))

    blocks = list(product(tables, range(0, targets.shape[1], _BLOCK)))
    found = in_batches(lambda one: [log_density(*one[0])], blocks, workers, progress, 1)
    synthetic, reference = np.concatenate([*found]).reshape(2, -1)
    return np.asarray(synthetic - reference)


@njit(nogil=True, cache=True)
def _differences(targets: NDArray, rows: NDArray) -> NDArray[np.int64]:
    """Count the rows that differ from each target in d attributes: (targets, attributes + 1)."""
    attributes, count = rows.shape
    found = np.zeros((targets.shape[1], attributes + 1), dtype=np.int64)
    differing = np.empty(count, dtype=np.uint16)
    for t in range(targets.shape[1]):
        differing[:] = 0
        for i in range(attributes):
            code = targets[i, t]
            for r in range(count):
                differing[r] += rows[i, r] != code
        for r in range(count):
            found[t, differing[r]] += 1
    return found


MAX_SETS = 500
"""Maximum number of sets of each size, an even sample of more."""


def marginal_scores(
    stack: Stack,
    chosen: Sequence[tuple[int, ...]],
    workers: int = 1,
    progress: StepProgress | None = None,
) -> Array:
    """Return the mean log-likelihood ratio of each target's cells in the chosen marginals.

    For a cell with s of S synthetic and r of R reference rows it is ln((s/S + a) / (r/R + a)),
    with a = 1 / min(S, R): one row of the smaller table, which keeps empty cells finite. Rows of
    the table push the counts of their own cells up, and so score higher: what synthesizers of
    marginals leak, as in MAMA-MIA (Golob et al. 2024), but without knowing which were measured.
    """
    floor = 1 / min(stack.rows[:2])

    def ratio(attributes: Sequence[int]) -> Array:
        columns = [stack.columns[i] for i in attributes]
        keys, bound = row_numbers(columns, [stack.sizes[i] for i in attributes])
        if bound > MAX_DENSE_CELLS:
            keys = ranked(keys)[0]
        *known, targets = stack.split(keys)
        cells = int(keys.max()) + 1
        synthetic, reference = (
            np.bincount(rows, minlength=cells)[targets] / len(rows) + floor for rows in known
        )
        return np.asarray(np.log(synthetic / reference))

    total = np.zeros(sum(stack.rows[2:]))
    for found in in_batches(lambda one: [ratio(*one)], chosen, workers, progress, 1):
        total += found
    return total / len(chosen)


def attribute_sets(attributes: int, seed: int) -> list[tuple[int, ...]]:
    """Return all sets of one, two and three attributes, or ``MAX_SETS`` of each size."""
    rng = np.random.default_rng(seed)
    sets: list[tuple[int, ...]] = []
    for ways in range(1, min(3, attributes) + 1):
        if math.comb(attributes, ways) <= MAX_SETS:
            sets += combinations(range(attributes), ways)
            continue
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < MAX_SETS:
            some = sorted(set(rng.integers(attributes, size=ways).tolist()))
            if len(some) == ways:
                drawn.add(tuple(some))
        sets += sorted(drawn)
    return sets


# The membership game.

MAX_TARGETS, MAX_KNOWN = 10_000, 100_000
"""Maximum number of members, and of non-members, that are attacked, and of synthetic rows, and of
reference rows, that the attacker uses."""
COARSE = 0.1
"""Half of the width of an interval that is worth a note."""
MARGINALS = "likelihood ratio of 1-, 2- and 3-way marginals"
CLOSENESS = "density of close rows, synthetic against reference"
ATTACKS = (MARGINALS, CLOSENESS)


def measure_membership(
    true: CodedTable,
    synthetic: CodedTable,
    control: CodedTable,
    promise: Promise | None,
    seed: int = 0,
    workers: int = 1,
    progress: StepProgress | None = None,
    confidence: float = 0.95,
    notes: Sequence[str] = (),
) -> Membership:
    """Attack a released table and compare the advantage with the bound of its promise; owner only.

    The attacker sees the synthetic table and half of the control rows, as a sample of the
    population, and has to distinguish rows of the true table (members) from the other half of the
    control rows (non-members), equally many.

    All intervals hold together with this confidence. Notes are on the control rows.

    Raises:
        InputError: the promise is no promise.
    """
    bound = None if promise is None else advantage_bound(promise)
    rng, half = np.random.default_rng(seed), control.num_rows // 2
    shuffled = rng.permutation(control.num_rows)
    targets = min(control.num_rows - half, true.num_rows, MAX_TARGETS)
    stack = Stack.from_parts([
        (synthetic, rng.permutation(synthetic.num_rows)[:MAX_KNOWN]),
        (control, shuffled[:half][:MAX_KNOWN]),
        (true, rng.permutation(true.num_rows)[:targets]),
        (control, shuffled[half:][:targets]),
    ])  # fmt: skip
    sets = attribute_sets(len(stack.columns), seed)
    steps = len(sets) + 2 * math.ceil(2 * targets / _BLOCK)
    found = (
        marginal_scores(stack, sets, workers, progress and (lambda k, _: progress(k, steps))),
        closeness_scores(
            stack, workers, progress and (lambda k, _: progress(len(sets) + k, steps))
        ),
    )
    judged = [
        judge(name, scores[:targets], scores[targets:], len(ATTACKS), confidence)
        for name, scores in zip(ATTACKS, found)
    ]
    scores = tuple(sorted(judged, key=lambda score: -score.advantage))
    least = max((score.upper - score.lower) / 2 for score in scores)
    limits = [
        "the intervals are about this one release, the bound about the mean over releases; other "
        "attacks may do better",
        *notes,
    ]
    if least > COARSE or (bound is not None and least > bound):
        limits.append(
            f"with {targets:,} rows of either kind no advantage below about {least:.2f} can be "
            "distinguished from none"
        )
    if targets == MAX_TARGETS:
        limits.append(f"{targets:,} rows of either kind were attacked, to save time")
    return Membership(scores, targets, targets, confidence, bound, promise, tuple(limits))


# The check of attacks.


class AttackCheck(Check):
    """Whether attacks distinguish members from others better than the promise allows."""

    name, title = "membership", "Membership attacks"
    rules = (
        Word(
            "alarm", "poor", lambda found: found.bound is not None and found.certain > found.bound
        ),
        Word("some gain", "fair", lambda found: found.certain > 0),
        Word("no gain", "good"),
    )

    def measure(self, comparison: Comparison) -> Membership | None:
        """Attack the synthetic table, if there is a control table."""
        if comparison.control is None:
            return None
        (control, note), pair = comparison.control, comparison.pair
        game = (control, comparison.promised.promise, comparison.settings.seed, comparison.workers)
        notes = () if note is None else (note,)
        steps = comparison.steps("attack")
        return measure_membership(pair.true, pair.synthetic, *game, steps, notes=notes)

    def judge(self, facts: Membership | None, evaluation: Any) -> Finding:
        """Compare the most certain gain with the bound."""
        promised = evaluation.comparison.promised
        if facts is None or not facts.scores:
            reason = promised.limitation
            text = "No control table was given, so no attack was run"
            text += f". {reason}." if reason else "; the promise holds without it."
            advice = ("Provide a control table to run the membership attacks.",)
            return Finding("plain", "not run", text, advice=advice)
        top = max(facts.scores, key=lambda score: score.lower)
        best = max(facts.scores, key=lambda score: score.advantage)
        which = "strongest attack" if top == best else "attack with the most certain gain"
        interval = f"between {decimals(top.lower)} and {decimals(top.upper)}"
        text = f"The {which} ({top.attack}) gains {decimals(top.advantage)}, {interval}"
        grade, word = self.word_for(facts)
        alarm = ""
        if word == "alarm":
            text += f": more than the {significant(facts.bound)} that the promise allows on average"
            text += " over releases. Do not release the table before that is explained."
            alarm = "An attack gains more than the promise allows, whatever else holds."
        else:
            if facts.bound is not None:
                text += f"; the promise allows at most {significant(facts.bound)} on average over"
                text += " releases"
            gain = "It distinguishes members from others better than chance"
            none = "No attack can be distinguished from chance"
            text += f". {none if word == 'no gain' else gain}."
        notes = (*facts.limitations, *filter(None, [promised.limitation]))
        return Finding(grade, word, text, headline=alarm, figures=_figures(facts), notes=notes)


def _figures(facts: Membership) -> tuple[checks.Figure, ...]:
    bound = "not known: no promise was found"
    if facts.bound is not None:
        bound = f"{significant(facts.bound)}: no attack on releases with this promise has a larger "
        bound += "advantage on average"
    rows = f"{facts.members:,} of the true table, {facts.non_members:,} of the control table"
    columns = (checks.Column("attack"), *(checks.number(head, decimals) for head in (
        "lower", "upper", "area under the curve", "advantage")))  # fmt: skip
    caption = (
        "Advantage: true positive rate minus false positive rate, 0 is a guess and 1 always right, "
        f"with {facts.confidence:.0%} intervals that hold together"
    )
    lines = [(s.attack, s.lower, s.upper, s.auc, s.advantage) for s in facts.scores]
    facts_shown = checks.Facts((("rows", rows), ("bound", bound)))
    return (facts_shown, checks.Table(caption, columns, lines))
