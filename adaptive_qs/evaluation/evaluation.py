"""Everything that is known of a synthetic table, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.evaluation.association import Association
from adaptive_qs.evaluation.attack.game import Membership
from adaptive_qs.evaluation.marginals import TotalVariation, WorkloadDistance
from adaptive_qs.evaluation.ordered import OrderedError
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.rows import RowChecks
from adaptive_qs.evaluation.rules import RuleCheck
from adaptive_qs.evaluation.utility.scores import Utility


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
