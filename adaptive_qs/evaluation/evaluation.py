"""Everything that is known of a synthetic table, in one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adaptive_qs.data.schema import Schema
from adaptive_qs.data.table import CodedTable
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.association import Association, association_of
from adaptive_qs.evaluation.attack.game import Membership, Promise
from adaptive_qs.evaluation.contingency import JointCodes
from adaptive_qs.evaluation.distances import marginal_distances
from adaptive_qs.evaluation.found_rules import found_rules
from adaptive_qs.evaluation.limits import limitations_of
from adaptive_qs.evaluation.marginals import (
    TotalVariation,
    WorkloadDistance,
    check_domain,
    drawn_cliques,
    total_variation,
    workload_distance,
)
from adaptive_qs.evaluation.ordered import OrderedError, ordered_errors
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.pairs import count_pairs
from adaptive_qs.evaluation.query_error import check_queries, query_error
from adaptive_qs.evaluation.query_parts import QueryError
from adaptive_qs.evaluation.rows import RowChecks, row_checks
from adaptive_qs.evaluation.rules import Rule, RuleCheck, check_rules, parse_rule
from adaptive_qs.evaluation.unseen import UnseenPairs, unseen_pairs
from adaptive_qs.evaluation.utility.scores import Utility
from adaptive_qs.evaluation.utility.settings import UtilitySettings
from adaptive_qs.progress import PhaseProgress, StepProgress
from adaptive_qs.workload.query_workload import QueryWorkload
from adaptive_qs.workload.workload import Workload

if TYPE_CHECKING:
    from adaptive_qs.evaluation.attack.overlap import Overlap

MOST_WAYS = 3
"""Total variation is told of all marginals of 1 to so many attributes."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A synthetic table against the truth; owner only.

    Attributes:
        pair: the tables.
        workload: errors of the workload's marginals.
        total_variation: of all 1-, 2- and 3-way marginals.
        association: between attributes.
        ordered: errors of prefixes and ranges, one entry for each ordered attribute.
        rows: checks of whole rows.
        rules: between columns.
        utility: of models; None where it was not asked for or is impossible.
        membership: attacks; None without a control table.
        limitations: what was left out or could not be computed, and why.
        unseen: pairs of values that the true table never shows.
        queries: error of the workload's queries; None where they are the cells of its marginals,
            whose error the workload has.
    """

    pair: TablePair
    workload: WorkloadDistance
    total_variation: tuple[TotalVariation, ...]
    association: Association
    ordered: tuple[OrderedError, ...]
    rows: RowChecks
    rules: tuple[RuleCheck, ...]
    utility: Utility | None
    membership: Membership | None
    limitations: tuple[str, ...]
    unseen: UnseenPairs | None = None
    queries: QueryError | None = None

    def __repr__(self) -> str:
        return (
            f"<Evaluation, owner only: mean L1 error {self.workload.mean_l1:.4g} and largest "
            f"{self.workload.max_l1:.4g} over {len(self.workload.per_clique):,} marginals>"
        )


def compare(
    pair: TablePair,
    schema: Schema,
    workload: Workload,
    rules: Iterable[str | Rule] = (),
    *,
    workers: int = 1,
    progress: PhaseProgress | None = None,
    utility: UtilitySettings | None = None,
    control: CodedTable | None = None,
    promise: Promise | None = None,
    seed: int = 0,
    queries: QueryWorkload | None = None,
) -> Evaluation:
    """Compare a synthetic table with the true one; the result is for the owner only.

    Args:
        pair: the tables.
        schema: of both.
        workload: the marginals that matter.
        rules: that the owner knows to hold; see :func:`parse_rule`.
        workers: threads; results do not depend on it.
        progress: told about the phases "evaluate", "queries", "pairs", "models" and
            "attack".
        utility: how to train models on both tables; None for no models.
        control: rows of the same population that the synthetic table was not made from, for the
            membership attack, and to test models on; None for no attack, and models tested on
            true rows.
        promise: that the release made, for the bound beside the attack.
        seed: of the attack.
        queries: of the workload, where they are others than the cells of its marginals.

    Raises:
        DataError: the tables, the workload and the schema have different columns, or a table has
            no rows; the control rows were not held out, or are too few.
        ResourceExceeded: queries on a set of attributes take too much memory.
        InputError: a rule or the target of the models does not fit the tables.
    """
    check_domain(pair, schema.domain())
    check_domain(pair, workload.domain)
    if queries is not None:
        check_domain(pair, queries.domain)
        check_queries(queries)
    declared = [parse_rule(rule, schema) if isinstance(rule, str) else rule for rule in rules]
    overlap = None if control is None else _overlap(pair.true, control, seed)
    domain = pair.domain
    joint = JointCodes(pair)
    ways = range(1, min(MOST_WAYS, len(domain)) + 1)
    cliques = [clique for k in ways for clique in drawn_cliques(domain, k)]
    found = marginal_distances(
        joint, [*workload.cliques, *cliques], workers, _steps(progress, "evaluate")
    )
    asked = None
    if queries is not None:
        asked = query_error(joint, queries, workers, _steps(progress, "queries"))
    counts = count_pairs(joint, workers, _steps(progress, "pairs"))
    checks = check_rules(joint, declared, "declared")
    checks += found_rules(counts, schema, [check.rule for check in checks])
    variation = tuple(total_variation(domain, k, found) for k in ways)
    whole_rows = row_checks(joint)
    limitations = list(limitations_of(counts, variation, whole_rows))
    num_values = {column.name: column.num_values for column in schema.columns}
    models = None
    if utility is not None:
        models, trouble = _utility(
            pair, utility, control, overlap, workers, _steps(progress, "models")
        )
        limitations += trouble
    return Evaluation(
        pair,
        workload_distance(workload, found),
        variation,
        association_of(counts),
        ordered_errors(pair, num_values),
        whole_rows,
        checks,
        models,
        None
        if control is None
        else _membership(
            pair, control, overlap, promise, seed, workers, _steps(progress, "attack")
        ),
        tuple(limitations),
        unseen_pairs(counts),
        asked,
    )


def _utility(
    pair: TablePair,
    settings: UtilitySettings,
    held_out: CodedTable | None,
    overlap: Overlap | None,
    workers: int,
    progress: StepProgress | None,
) -> tuple[Utility | None, list[str]]:
    """The models' scores, or why there are none for a target that nobody named."""
    from adaptive_qs.evaluation.utility.measure import measure_utility  # slow to import

    try:
        found = measure_utility(
            pair.true, pair.synthetic, settings, workers, progress, held_out, overlap
        )
        return found, []
    except InputError as error:
        if settings.target is not None:
            raise
        return None, [f"no models: {error}"]


def _membership(
    pair: TablePair,
    control: CodedTable,
    overlap: Overlap | None,
    promise: Promise | None,
    seed: int,
    workers: int,
    progress: StepProgress | None,
) -> Membership:
    from adaptive_qs.evaluation.attack.measure import measure_membership  # slow to import

    return measure_membership(
        pair.true, pair.synthetic, control, promise, seed, workers, progress, overlap=overlap
    )


def _overlap(true: CodedTable, control: CodedTable, seed: int) -> Overlap:
    from adaptive_qs.evaluation.attack.overlap import check_control  # slow to import

    return check_control(true, control, seed)


def _steps(progress: PhaseProgress | None, phase: str) -> StepProgress | None:
    if progress is None:
        return None
    return lambda done, total: progress(phase, done, total)
