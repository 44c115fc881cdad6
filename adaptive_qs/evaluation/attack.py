"""A membership-inference attack on the released table, beside the bound that was promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations, product

import numba as nb
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve

from adaptive_qs.domain import Attribute
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.results import SEEDS, AttackScore, Membership, Promise
from adaptive_qs.evaluation.tables import Overlap, TablePair, check_control, ranked, row_numbers
from adaptive_qs.evaluation.target import gradient_boosting, run_tasks
from adaptive_qs.machine import StepProgress
from adaptive_qs.privacy.accounting import delta_of
from adaptive_qs.table.coded import CodedTable

# Advantage of an attack, with an interval that holds for all attacks together.

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


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
    truth = np.repeat([1, 0], [len(members), len(non_members)])
    fpr, tpr, thresholds = roc_curve(truth, np.concatenate([members, non_members]))
    return float(thresholds[np.argmax(tpr - fpr)])


def resolution(targets: int, attacks: int, confidence: float) -> float:
    """The least advantage that the interval tells from none, at rates around one half.

    Args:
        targets: of either kind; half of them are tested.
        attacks: how many are judged together.
        confidence: of all intervals together.
    """
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
    found = minimize_scalar(
        lambda log_epsilon: pair_distance(
            math.exp(log_epsilon), delta_of(rho, math.exp(log_epsilon))
        ),
        bounds=_LOG_EPSILONS,
        method="bounded",
    )
    return float(found.fun)


# Codes of several tables side by side, as whole numbers that mean the same in each.

MAX_KEYS = 2**22
"""More cells are numbered by those that are occupied."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Rows of what the attacker sees and of what is attacked.

    Attributes:
        columns: one array for each attribute, over all rows: the synthetic ones, the reference
            rows, the members, the non-members. Codes in use are numbered 0, 1, ...
        sizes: codes in use, by attribute.
        rows: numbers of synthetic, reference, member and non-member rows.
    """

    columns: tuple[Codes, ...]
    sizes: tuple[int, ...]
    rows: tuple[int, int, int, int]

    @classmethod
    def of(cls, parts: Sequence[tuple[CodedTable, Codes]]) -> Stack:
        """The chosen rows of four tables."""
        columns = []
        for i in range(len(parts[0][0].domain)):
            codes = np.concatenate([table.columns[i][rows] for table, rows in parts])
            columns.append(np.unique(codes, return_inverse=True)[1])
        synthetic, reference, members, non_members = (len(rows) for _, rows in parts)
        sizes = tuple(int(column.max()) + 1 for column in columns)
        return cls(tuple(columns), sizes, (synthetic, reference, members, non_members))

    def part(self, values: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        """Values of all rows as those of the synthetic rows, the reference and the targets."""
        first, second, third = np.split(values, np.cumsum(self.rows[:2]))
        return first, second, third

    def split_targets(self, scores: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Scores of the targets as those of members and of non-members."""
        return scores[: self.rows[2]], scores[self.rows[2] :]

    def keys(self, clique: Sequence[int]) -> Codes:
        """A number for each row, equal where rows agree on these attributes; below 2^22 + rows."""
        keys, bound = row_numbers(
            [self.columns[i] for i in clique], [self.sizes[i] for i in clique]
        )
        return ranked(keys)[0] if bound > MAX_KEYS else keys


# Attack by a classifier that tells synthetic from reference rows.

CLASSIFIER_ROWS = 10_000
"""Rows of either kind that it learns from."""


def classifier_scores(
    stack: Stack, attributes: tuple[Attribute, ...], seed: int
) -> NDArray[np.float64]:
    """How surely a boosted classifier takes each target for a synthetic row.

    It learns from equally many synthetic and reference rows. The odds that it finds estimate the
    ratio of their densities, as DOMIAS asks for (van Breugel et al. 2023).

    Args:
        stack: the rows.
        attributes: of the tables.
        seed: of the model.

    Returns:
        Shape (targets,).
    """
    synthetic, reference, targets = stack.part(np.column_stack(stack.columns).astype(np.float64))
    rows = min(len(synthetic), len(reference), CLASSIFIER_ROWS)
    features = np.concatenate([synthetic[:rows], reference[:rows]])

    def learn() -> NDArray[np.float64]:
        model = gradient_boosting(attributes, seed)
        model.fit(features, np.repeat([1, 0], rows))
        scores: NDArray[np.float64] = model.decision_function(targets)
        return scores

    return run_tasks([learn], 1)[0]


# Attack by closeness: rows that have more synthetic than reference rows around them.

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


def density_steps(targets: int) -> int:
    """Steps of the progress for so many targets."""
    return 2 * math.ceil(targets / _BLOCK)


def closeness_scores(
    stack: Stack, workers: int = 1, progress: StepProgress | None = None
) -> NDArray[np.float64]:
    """Log ratio of two kernel densities at each target: of the synthetic and the reference rows.

    The kernel is 0.03^d with the number d of attributes that differ, so that equal and almost
    equal rows decide: DOMIAS (van Breugel et al. 2023) with densities for codes. It scores an
    attack and says nothing on its own: a synthetic row close to a true one is no breach. Time is
    bounded whatever the number of columns: see :func:`rows_compared`.

    Args:
        stack: the rows.
        workers: threads.
        progress: called with the blocks of targets done and in all.

    Returns:
        Shape (targets,).
    """
    log_kernel = math.log(KEPT_PER_DIFFERENCE) * np.arange(len(stack.columns) + 1)
    most = rows_compared(len(stack.columns))
    dtype = np.min_scalar_type(max(stack.sizes))
    codes = np.stack([column.astype(dtype) for column in stack.columns])
    synthetic, reference, targets = np.split(codes, np.cumsum(stack.rows[:2]), axis=1)
    tables = [np.ascontiguousarray(rows[:, :most]) for rows in (synthetic, reference)]
    blocks = range(0, targets.shape[1], _BLOCK)

    def log_density(table: NDArray, start: int) -> NDArray:
        block = targets[:, start : start + _BLOCK]
        total = logsumexp(log_kernel, axis=1, b=_differences(block, table))
        return np.asarray(total - math.log(table.shape[1]))

    found: list[NDArray] = []
    with ThreadPoolExecutor(workers) as pool:
        for part in pool.map(log_density, *zip(*product(tables, blocks))):
            found.append(part)
            if progress is not None:
                progress(len(found), 2 * len(blocks))
    log_densities = np.concatenate(found).reshape(2, -1)
    return np.asarray(log_densities[0] - log_densities[1])


@nb.njit(nogil=True, cache=True)
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


# Attack by marginals: cells that the synthetic rows fill more than the population does.

MAX_SETS = 500
"""Sets of each size that are looked at; of more, an even sample."""
WAYS = (1, 2, 3)


def marginal_scores(
    stack: Stack, seed: int, workers: int = 1, progress: StepProgress | None = None
) -> NDArray[np.float64]:
    """Mean log-likelihood ratio of each target's cells in the 1-, 2- and 3-way marginals.

    For a cell with s of S synthetic and r of R reference rows it is ln((s/S + a) / (r/R + a)),
    with a = 1 / min(S, R): one row of the smaller table, which keeps empty cells finite. Rows of
    the table push the counts of their own cells up, and so score higher. DOMIAS (van Breugel et
    al. 2023) with the densities that synthesisers of marginals leak, as in MAMA-MIA (Golob et al.
    2024), but without knowing which marginals were measured.

    Returns:
        Shape (targets,).
    """
    chosen = attribute_sets(len(stack.columns), seed)
    floor = 1 / min(stack.rows[:2])

    def ratio(attributes: Sequence[int]) -> NDArray[np.float64]:
        synthetic, reference, targets = stack.part(stack.keys(attributes))
        cells = 1 + max(int(part.max()) for part in (synthetic, reference, targets))
        shares = [
            np.bincount(part, minlength=cells)[targets] / len(part) + floor
            for part in (synthetic, reference)
        ]
        result: NDArray[np.float64] = np.log(shares[0] / shares[1])
        return result

    total = np.zeros(sum(stack.rows[2:]))
    with ThreadPoolExecutor(workers) as pool:
        for done, found in enumerate(pool.map(ratio, chosen), 1):
            total += found
            if progress is not None:
                progress(done, len(chosen))
    return total / len(chosen)


def attribute_sets(attributes: int, seed: int) -> list[tuple[int, ...]]:
    """All sets of one, two and three attributes, or 500 of each size where there are more."""
    rng = np.random.default_rng(seed)
    sets: list[tuple[int, ...]] = []
    for ways in WAYS:
        if math.comb(attributes, ways) <= MAX_SETS:
            sets.extend(combinations(range(attributes), ways))
            continue
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < MAX_SETS:
            some = sorted(rng.integers(attributes, size=ways).tolist())
            if len(set(some)) == ways:
                drawn.add(tuple(some))
        sets.extend(sorted(drawn))
    return sets


# The membership game played on a released table.

MAX_TARGETS = 10_000
"""Members, and as many non-members, that are attacked at most."""
MAX_KNOWN = 100_000
"""Synthetic rows, and reference rows, that the attacker uses at most."""
COARSE = 0.1
"""A resolution worse than this is pointed out."""

MARGINALS = "likelihood ratio of 1-, 2- and 3-way marginals"
CLASSIFIER = "classifier of synthetic against reference rows"
CLOSENESS = "density of close rows, synthetic against reference"
ATTACKS = (MARGINALS, CLASSIFIER, CLOSENESS)


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
        seed: of the draw of targets and reference rows, and of the classifier.
        workers: threads in all; they change no result.
        progress: called with the steps of the attacks done and in all.
        confidence: with which all intervals hold together.
        overlap: of :func:`check_control`, where that has been computed with the same seed.

    Raises:
        DataError: the domains differ, a table has too few rows, or the control rows were not held
            out.
        InputError: the promise is no promise, the confidence not inside (0, 1), or the seed
            negative or 2^32 or more.
    """
    TablePair(true, synthetic)
    if not 0 <= seed < SEEDS:
        raise InputError(f"seed is {seed}: give 0 to {SEEDS - 1:,}")
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
    steps = marginals + density_steps(2 * targets)

    def after(before: int) -> StepProgress | None:
        return None if progress is None else lambda done, _: progress(before + done, steps)

    found = {
        MARGINALS: marginal_scores(stack, seed, workers, after(0)),
        CLASSIFIER: classifier_scores(stack, true.domain.attributes, seed),
        CLOSENESS: closeness_scores(stack, workers, after(marginals)),
    }
    judged = [
        judge(name, *stack.split_targets(found[name]), len(ATTACKS), confidence) for name in ATTACKS
    ]
    return Membership(
        scores=tuple(sorted(judged, key=lambda score: -score.advantage)),
        members=targets,
        non_members=targets,
        confidence=confidence,
        bound=bound,
        promise=promise,
        limitations=_limitations(
            overlap, resolution(targets, len(ATTACKS), confidence), bound, targets, stack
        ),
    )


def _limitations(
    overlap: Overlap, least: float, bound: float | None, targets: int, stack: Stack
) -> tuple[str, ...]:
    said = [
        "the intervals are about this one release, the bound about the mean over releases; other "
        "attacks may do better"
    ]
    if overlap.found:
        said.append(
            f"the control table overlaps the true one: {overlap.control:.1%} of its rows equal "
            f"others there, against {overlap.true:.1%} by chance; attacks look weaker than they are"
        )
    elif overlap.complete:
        said.append(
            "every control row is also a row of the true table, as may be where few combinations "
            "of values exist: whether the control rows were held out cannot be told"
        )
    if least > COARSE or (bound is not None and least > bound):
        said.append(
            f"with {targets:,} rows of either kind no advantage below about {least:.2f} can be "
            "distinguished from none"
        )
    if targets == MAX_TARGETS:
        said.append(f"{targets:,} rows of either kind were attacked, to save time")
    compared = rows_compared(len(stack.columns))
    if compared < min(CLOSENESS_ROWS, max(stack.rows[:2])):
        said.append(
            f"the density of close rows was taken from {compared:,} rows of either kind at most: "
            "with so many columns more take long"
        )
    return tuple(said)
