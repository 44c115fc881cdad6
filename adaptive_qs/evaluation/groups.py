"""The error within the groups of one column, beside what a sample of each group's size would have:
are small groups served worse?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.chance import chance_l1, fresh_sample_l1, sparse_share
from adaptive_qs.evaluation.limits import CLOSE_SINGLE, STEP_ERROR, UNEQUAL
from adaptive_qs.evaluation.marginals import marginal_distances
from adaptive_qs.evaluation.tables import JointCodes, TablePair
from adaptive_qs.machine import StepProgress
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

MOST_GROUPS = 50
"""Codes of a column that can make the groups."""
MOST_MARGINALS, MOST_CELLS = 60, 2**20
"""Marginals that are compared within every group, an even choice of the workload's, and cells of
each."""


@dataclass(frozen=True)
class GroupError:
    """The error within one group; means over the marginals.

    Attributes:
        label: of the group.
        rows: of the true and of the synthetic table.
        error: L1 distance of the marginals of its true and of its synthetic rows; None where it has
            no synthetic rows.
        fresh: the same expected of a fresh sample with as many rows as it has synthetic ones.
        doubt: how much further chance, and the estimate, may take a fresh sample.
    """

    label: str
    rows: tuple[int, int]
    error: float | None
    fresh: float | None
    doubt: float = 0.0

    @property
    def excess(self) -> float | None:
        """How much further off it is than a fresh sample."""
        return None if self.error is None or self.fresh is None else self.error - self.fresh


@dataclass(frozen=True)
class GroupErrors:
    """The errors within the groups of one column; owner only.

    Attributes:
        by: name of the column.
        marginals: number of marginals compared, of the other columns.
        all: all rows together.
        groups: that true rows have, in the order of the codes.
    """

    by: str
    marginals: int
    all: GroupError
    groups: tuple[GroupError, ...]

    @property
    def worse(self) -> list[GroupError]:
        """Groups that are served worse than all rows together, the worst first."""
        least = max(CLOSE_SINGLE, UNEQUAL * (self.all.excess or 0.0))
        found = [
            group
            for group in self.groups
            if group.excess is None or group.excess > max(least, group.doubt)
        ]
        return sorted(found, key=lambda g: -2.0 if g.excess is None else -g.excess)

    def as_json(self) -> dict[str, Any]:
        """Plain values; the groups by their labels."""

        def plain(group: GroupError) -> dict[str, Any]:
            rows = dict(zip(("true", "synthetic"), group.rows))
            errors = {"mean_l1": group.error, "fresh_sample": group.fresh}
            return {"value": group.label, "rows": rows, **errors}

        worse = self.worse
        groups = [{**plain(group), "worse": group in worse} for group in self.groups]
        content = {"attribute": self.by, "marginals": self.marginals, "all": plain(self.all)}
        return {**content, "groups": groups}


def check_by(by: str, schema: Schema) -> None:
    """Refuse a column that cannot make groups.

    Raises:
        InputError: it is unknown, the only one, or has too many values.
    """
    if by not in schema.names:
        raise InputError(f"by {by!r} is not in the schema: check the spelling")
    if len(schema.names) == 1:
        raise InputError(f"by {by!r} is the only column: nothing is left to compare in its groups")
    if (size := schema.column(by).size) > MOST_GROUPS:
        raise InputError(
            f"by {by!r} has {size:,} codes, more than {MOST_GROUPS}: name a column with fewer"
        )


def group_errors(
    pair: TablePair,
    schema: Schema,
    by: str,
    workload: Workload,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> GroupErrors:
    """The errors within the groups of one column.

    Args:
        pair: the tables.
        schema: of both.
        by: the column, as :func:`check_by` allows.
        workload: the marginals, which are taken without that column.
    """
    place = schema.names.index(by)
    cliques = without_column(workload, place)
    labels = schema.column(by).labels_of_codes()
    codes = pair.true.columns[place], pair.synthetic.columns[place]
    rows = [np.bincount(each, minlength=len(labels)) for each in codes]
    present = np.flatnonzero(rows[0]).tolist()
    groups = []
    for done, code in enumerate(present, 1):
        numbers = int(rows[0][code]), int(rows[1][code])
        if numbers[1]:
            true = _rows_of(pair.true, codes[0] == code)
            made = _rows_of(pair.synthetic, codes[1] == code)
            groups.append(group_error(labels[code], TablePair(true, made), cliques, workers))
        else:
            groups.append(GroupError(labels[code], numbers, None, None))
        if progress is not None:
            progress(done, len(present) + 1)
    everything = group_error("all rows", pair, cliques, workers)
    return GroupErrors(by, len(cliques), everything, tuple(groups))


def without_column(workload: Workload, place: int) -> list[Clique]:
    """The workload's marginals without one column, each once; single columns where none is left."""
    domain = workload.domain
    found = dict.fromkeys(tuple(i for i in clique if i != place) for clique in workload.cliques)
    cliques = [c for c in found if c and domain.size(c) <= MOST_CELLS]
    cliques = cliques or [(i,) for i in range(len(domain)) if i != place]
    widest = max(map(len, cliques))
    if len(wide := [c for c in cliques if len(c) == widest]) >= len(cliques) / 2:
        cliques = wide  # what is left of those that held the column says less
    step = -(-len(cliques) // MOST_MARGINALS)
    return cliques[::step]


def _rows_of(table: CodedTable, chosen: np.ndarray) -> CodedTable:
    return CodedTable(table.domain, tuple(column[chosen] for column in table.columns))


def group_error(label: str, pair: TablePair, cliques: Sequence[Clique], workers: int) -> GroupError:
    """The mean error of some marginals of two tables, beside that of a fresh sample."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    found = marginal_distances(JointCodes(pair), cliques, workers)
    counter = MarginalCounter(pair.true, workers=workers)
    counter.prepare(cliques)
    counts = [counter.count(clique) for clique in cliques]
    fresh = float(np.mean([fresh_sample_l1(each, rows[1]) for each in counts]))
    sparse = float(np.mean([sparse_share(each) for each in counts]))
    error = float(np.mean([found[clique].l1 for clique in cliques]))
    doubt = chance_l1(*rows, sparse) + STEP_ERROR * fresh
    return GroupError(label, rows, error, fresh, doubt)
