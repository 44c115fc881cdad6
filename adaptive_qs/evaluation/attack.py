"""A membership-inference attack on the released table, compared with the bound of its promise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.checks import (
    Check,
    Column,
    Comparison,
    Facts,
    Finding,
    Table,
    Word,
    number,
)
from adaptive_qs.evaluation.promise import Promise, why_no_promise
from adaptive_qs.evaluation.tables import (
    Overlap,
    TablePair,
    check_control,
    in_batches,
    ranked,
    row_numbers,
)
from adaptive_qs.machine import StepProgress, njit
from adaptive_qs.pages.words import decimals, significant
from adaptive_qs.privacy.accounting import compute_delta
from adaptive_qs.table.coded import CodedTable

# Advantage of an attack, with an interval that holds for all attacks together.

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class AttackScore:
    """One attack.

    Attributes:
        attack: what it does, in a few words.
        advantage: true positive rate minus false positive rate at a threshold chosen on other
            rows.
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
    """The attacks on a released table against rows that were held out; owner only.

    Attributes:
        scores: of each attack; the strongest first.
        members, non_members: rows of the true and of the control table that were attacked.
        confidence: of every interval, all intervals together.
        bound: no attack has a larger advantage in the mean over releases; None where no promise is
            known.
        promise: that the bound follows from.
        limitations: what a reader has to know, such as a control table that overlaps.
    """

    scores: tuple[AttackScore, ...]
    members: int
    non_members: int
    confidence: float
    bound: float | None
    promise: Promise | None
    limitations: tuple[str, ...]


def judge(
    attack: str, members: Array, non_members: Array, attacks: int, confidence: float
) -> AttackScore:
    """The advantage of a score at a threshold that was chosen on other targets.

    The first half of either kind chooses the threshold: where true positive rate minus false
    positive rate is largest there; nobody is accused where no threshold does better than that.
    The other half is then a random sample of rows to which a fixed rule is applied, so its counts
    of accused rows are binomial (members are drawn without replacement, which makes theirs less
    dispersed). Exact Clopper-Pearson intervals of both rates, each with error probability
    (1 - confidence) / (2 attacks), hold for all rates of all attacks together with `confidence`
    by Bonferroni; the difference of the ends brackets every advantage whenever they do.

    Args:
        attack: its name.
        members: scores of members, in random order; higher speaks for membership.
        non_members: scores of non-members, likewise.
        attacks: how many are judged together.
        confidence: of all intervals together.
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
    """The score from which on rows are accused; infinite if no accusation is better than none."""
    from sklearn.metrics import roc_curve

    truth = np.repeat([1, 0], [len(members), len(non_members)])
    fpr, tpr, thresholds = roc_curve(truth, np.concatenate([members, non_members]))
    return float(thresholds[np.argmax(tpr - fpr)])


def resolution(targets: int, attacks: int, confidence: float) -> float:
    """The least advantage that the interval tells from none, at rates around one half.

    Args:
        targets: of either kind; half of them are tested.
        attacks, confidence: as for :func:`judge`.
    """
    from scipy.stats import binomtest

    tested = targets - targets // 2
    level = 1 - (1 - confidence) / (2 * attacks)
    interval = binomtest(tested // 2, tested).proportion_ci(level, method="exact")
    return float(interval.high - interval.low)


# The advantage that a privacy promise leaves to any membership attack.
#
# Proof: docs/proofs.md, section 10.

_LOG_EPSILONS = (-12.0, 6.0)
"""Range of ln ε that is searched; every ε gives a valid bound."""


def advantage_bound(promise: Promise) -> float | None:
    """The largest expected advantage that the promise leaves; None if it names neither ρ nor ε.

    Raises:
        InputError: ρ, ε or δ is negative, not finite, or no probability.
    """
    bounds = [1.0]
    if promise.rho is not None:
        bounds.append(replacement_distance(promise.rho))
    if promise.epsilon is not None:
        epsilon, delta = promise.epsilon, promise.delta or 0.0
        if not 0 <= epsilon < math.inf:
            raise InputError(f"epsilon is {epsilon!r}: give a finite number of 0 or more")
        if not 0 <= delta <= 1:
            raise InputError(f"delta is {delta!r}: give a number from 0 to 1")
        group_delta = min(1.0, (1 + math.exp(min(epsilon, 700.0))) * delta)
        bounds += [pair_distance(2 * epsilon, group_delta), 2 * pair_distance(epsilon, delta)]
    return min(bounds) if len(bounds) > 1 else None


def replacement_distance(rho: float) -> float:
    """Bound of the total variation between releases of tables in which one row is replaced.

    Args:
        rho: zCDP for the addition or removal of one row.

    Raises:
        InputError: rho is negative or not finite.
    """
    if not 0 <= rho < math.inf:
        raise InputError(f"rho is {rho!r}: give a finite number of 0 or more")
    if rho == 0:
        return 0.0
    divergence = 4 * rho
    return min(
        1.0,
        math.sqrt(divergence / 2),
        math.sqrt(-math.expm1(-divergence)),
        _least_on_curve(divergence),
        2 * _least_on_curve(rho),
    )


def pair_distance(epsilon: float, delta: float) -> float:
    """Bound of the total variation of two distributions that are (ε, δ)-close both ways."""
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0))))


def _least_on_curve(rho: float) -> float:
    """The best bound by an (ε, δ) that ρ-zCDP implies."""
    from scipy.optimize import minimize_scalar

    def distance(log_epsilon: float) -> float:
        epsilon = math.exp(log_epsilon)
        return pair_distance(epsilon, compute_delta(rho, epsilon))

    return float(minimize_scalar(distance, bounds=_LOG_EPSILONS, method="bounded").fun)


# What the attacker sees, and what is attacked.

MAX_KEYS = 2**22
"""More cells are numbered by those that are occupied."""


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
    def of(cls, parts: Sequence[tuple[CodedTable, Codes]]) -> Stack:
        """The chosen rows of four tables."""
        columns, sizes = zip(
            *(
                ranked(np.concatenate([table.columns[i][rows] for table, rows in parts]))
                for i in range(len(parts[0][0].domain))
            )
        )
        return cls(columns, sizes, tuple(len(rows) for _, rows in parts))

    def part(self, values: NDArray) -> list[NDArray]:
        """Values of all rows as those of the synthetic rows, the reference and the targets."""
        return np.split(values, np.cumsum(self.rows[:2]))

    def split_targets(self, scores: Array) -> tuple[Array, Array]:
        """Scores of the targets as those of members and of non-members."""
        return scores[: self.rows[2]], scores[self.rows[2] :]

    def keys(self, clique: Sequence[int]) -> Codes:
        """A number for each row, equal where rows agree on these attributes; below 2^22 + rows."""
        keys, bound = row_numbers(
            [self.columns[i] for i in clique], [self.sizes[i] for i in clique]
        )
        return ranked(keys)[0] if bound > MAX_KEYS else keys


# Two attacks. Each gives a score for every target, shape (targets,): an estimate of the ratio of
# the densities of synthetic and reference rows there (DOMIAS, van Breugel et al. 2023).

KEPT_PER_DIFFERENCE = 0.03
"""Weight of a row that differs in one more attribute, so that the closest rows decide."""
CLOSENESS_ROWS = 40_000
"""Synthetic and reference rows each that targets are compared with."""
MAX_CELLS = 16 * CLOSENESS_ROWS
"""Of those rows; of tables with more than 16 columns fewer rows are compared."""
_BLOCK = 250


def rows_compared(attributes: int) -> int:
    """Synthetic and reference rows each that targets are compared with at most."""
    return max(1, min(CLOSENESS_ROWS, MAX_CELLS // attributes))


def closeness_scores(stack: Stack, workers: int = 1, progress: StepProgress | None = None) -> Array:
    """Log ratio of two kernel densities at each target.

    The kernel is 0.03^d with the number d of attributes that differ, so that equal and almost
    equal rows decide. It says nothing on its own: a synthetic row close to a true one is no breach.
    Time is bounded whatever the number of columns: see :func:`rows_compared`.
    """
    from scipy.special import logsumexp

    log_kernel = math.log(KEPT_PER_DIFFERENCE) * np.arange(len(stack.columns) + 1)
    most = rows_compared(len(stack.columns))
    codes = np.stack(stack.columns).astype(np.min_scalar_type(max(stack.sizes)))
    *known, targets = np.split(codes, np.cumsum(stack.rows[:2]), axis=1)
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
    """How many rows differ from each target in d attributes, shape (targets, attributes + 1)."""
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
"""Sets of each size that are looked at; of more, an even sample."""
MOST_WAYS = 3


def marginal_scores(
    stack: Stack, seed: int, workers: int = 1, progress: StepProgress | None = None
) -> Array:
    """Mean log-likelihood ratio of each target's cells in the 1-, 2- and 3-way marginals.

    For a cell with s of S synthetic and r of R reference rows it is ln((s/S + a) / (r/R + a)),
    with a = 1 / min(S, R): one row of the smaller table, which keeps empty cells finite. Rows of
    the table push the counts of their own cells up, and so score higher: what synthesizers of
    marginals leak, as in MAMA-MIA (Golob et al. 2024), but without knowing which were measured.
    """
    chosen = attribute_sets(len(stack.columns), seed)
    floor = 1 / min(stack.rows[:2])

    def ratio(attributes: Sequence[int]) -> Array:
        *known, targets = stack.part(keys := stack.keys(attributes))
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
    ways = range(1, min(MOST_WAYS, attributes) + 1)
    return [drawn for k in ways for drawn in draw_sets(attributes, k, rng)]


def draw_sets(attributes: int, ways: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return all sets of a number of attributes, or an even sample of ``MAX_SETS``."""
    if math.comb(attributes, ways) <= MAX_SETS:
        return list(combinations(range(attributes), ways))
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < MAX_SETS:
        some = sorted(set(rng.integers(attributes, size=ways).tolist()))
        if len(some) == ways:
            drawn.add(tuple(some))
    return sorted(drawn)


# The membership game played on a released table.

MAX_TARGETS = 10_000
"""Members, and as many non-members, that are attacked at most."""
MAX_KNOWN = 100_000
"""Synthetic rows, and reference rows, that the attacker uses at most."""
COARSE = 0.1
"""A resolution worse than this is pointed out."""

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
    overlap: Overlap | None = None,
) -> Membership:
    """Attack a released table and set the advantage beside the bound of its promise; owner only.

    The attacker sees the synthetic table and half of the control rows, as a sample of the
    population, and is to tell rows of the true table (members) from the other half of the control
    rows (non-members), equally many. :func:`judge` says how attacks are judged, and
    :func:`advantage_bound` what the promise implies.

    Args:
        true: the private rows that the synthetic table was made from.
        synthetic: the released rows.
        control: rows of the same population that were held out.
        promise: of the release; None if it is not known, or if its noise came from a seed, which
            voids it.
        seed: of the draw of targets and reference rows.
        confidence: with which all intervals hold together.
        overlap: of :func:`check_control`, where that has been computed with the same seed.

    Raises:
        DataError: the domains differ, a table has too few rows, or the control rows were not held
            out.
        InputError: the promise is no promise, or the confidence not inside (0, 1).
    """
    TablePair(true, synthetic)
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence!r}: give a number between 0 and 1")
    bound = None if promise is None else advantage_bound(promise)
    if overlap is None:
        overlap = check_control(true, control, seed)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(control.num_rows)
    half = control.num_rows // 2
    targets = min(control.num_rows - half, true.num_rows, MAX_TARGETS)
    stack = Stack.of(
        [
            (synthetic, rng.permutation(synthetic.num_rows)[:MAX_KNOWN]),
            (control, shuffled[:half][:MAX_KNOWN]),
            (true, rng.permutation(true.num_rows)[:targets]),
            (control, shuffled[half:][:targets]),
        ]
    )
    marginals = len(attribute_sets(len(stack.columns), seed))
    steps = marginals + 2 * math.ceil(2 * targets / _BLOCK)

    def after(before: int) -> StepProgress | None:
        return None if progress is None else lambda done, _: progress(before + done, steps)

    found = (
        marginal_scores(stack, seed, workers, after(0)),
        closeness_scores(stack, workers, after(marginals)),
    )
    judged = [
        judge(name, *stack.split_targets(scores), len(ATTACKS), confidence)
        for name, scores in zip(ATTACKS, found)
    ]
    least = resolution(targets, len(ATTACKS), confidence)
    return Membership(
        scores=tuple(sorted(judged, key=lambda score: -score.advantage)),
        members=targets,
        non_members=targets,
        confidence=confidence,
        bound=bound,
        promise=promise,
        limitations=tuple(_limitations(overlap, least, bound, targets, stack)),
    )


def _limitations(
    overlap: Overlap, least: float, bound: float | None, targets: int, stack: Stack
) -> Iterator[str]:
    yield (
        "the intervals are about this one release, the bound about the mean over releases; other "
        "attacks may do better"
    )
    if overlap.found:
        yield (
            f"the control table overlaps the true one: {overlap.control:.1%} of its rows equal "
            f"others there, against {overlap.true:.1%} by chance; attacks look weaker than they are"
        )
    elif overlap.complete:
        yield (
            "every control row is also a row of the true table, as may be where few combinations "
            "of values exist: whether the control rows were held out cannot be told"
        )
    if least > COARSE or (bound is not None and least > bound):
        yield (
            f"with {targets:,} rows of either kind no advantage below about {least:.2f} can be "
            "distinguished from none"
        )
    if targets == MAX_TARGETS:
        yield f"{targets:,} rows of either kind were attacked, to save time"
    compared = rows_compared(len(stack.columns))
    if compared < min(CLOSENESS_ROWS, max(stack.rows[:2])):
        yield (
            f"the density of close rows was taken from {compared:,} rows of either kind at most: "
            "with so many columns more take long"
        )


# The check of attacks.


class JudgedAttack(NamedTuple):
    """The largest lower end of the advantages, and the bound of the promise."""

    lower: float
    bound: float | None


class AttackCheck(Check):
    """Whether attacks tell members from others better than the promise allows.

    The intervals hold together, so the largest lower end decides: another attack can have a larger
    estimate and a less certain gain.
    """

    name, title = "membership", "Membership attacks"
    rules = (
        Word("alarm", "poor", lambda found: found.bound is not None and found.lower > found.bound),
        Word("some gain", "fair", lambda found: found.lower > 0),
        Word("no gain", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> Membership | None:
        if comparison.control is None:
            return None
        (control, overlap), pair = comparison.control, comparison.pair
        game = (control, comparison.promised.promise, comparison.settings.seed, comparison.workers)
        steps = comparison.steps("attack")
        return measure_membership(pair.true, pair.synthetic, *game, steps, overlap=overlap)

    def judge(self, facts: Membership | None, evaluation: Any) -> Finding:
        promised = evaluation.comparison.promised
        if facts is None or not facts.scores:
            reason = why_no_promise(promised.statement)
            text = "No control table was given, so no attack was run"
            text += f". {reason}." if reason else "; the promise holds without it."
            advice = ("Provide a control table to run the membership attacks.",)
            return Finding("plain", "not run", text, advice=advice)
        top = max(facts.scores, key=lambda score: score.lower)
        best = max(facts.scores, key=lambda score: score.advantage)
        which = "strongest attack" if top == best else "attack with the most certain gain"
        interval = f"between {decimals(top.lower)} and {decimals(top.upper)}"
        text = f"The {which} ({top.attack}) gains {decimals(top.advantage)}, {interval}"
        grade, word = self.word_for(JudgedAttack(top.lower, facts.bound))
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
            text += (
                f". {'No attack can be distinguished from chance' if word == 'no gain' else gain}."
            )
        notes = facts.limitations
        if promised.limitation:
            notes = (*notes, promised.limitation)
        return Finding(grade, word, text, headline=alarm, figures=_figures(facts), notes=notes)


def _figures(facts: Membership) -> tuple[Facts | Table, ...]:
    bound = "not known: no promise was found"
    if facts.bound is not None:
        bound = f"{significant(facts.bound)}: no attack on releases with this promise has a larger "
        bound += "advantage on average"
    rows = f"{facts.members:,} of the true table, {facts.non_members:,} of the control table"
    columns = (
        Column("attack"), number("lower", decimals), number("upper", decimals),
        number("area under the curve", decimals), number("advantage", decimals),
    )  # fmt: skip
    caption = (
        "Advantage: true positive rate minus false positive rate, 0 is a guess and 1 always right, "
        f"with {facts.confidence:.0%} intervals that hold together"
    )
    lines = [(s.attack, s.lower, s.upper, s.auc, s.advantage) for s in facts.scores]
    return (Facts((("rows", rows), ("bound", bound))), Table(caption, columns, lines, "attacks"))
