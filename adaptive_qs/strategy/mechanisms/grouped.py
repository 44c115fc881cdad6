"""Several whole-domain mechanisms side by side, each for its own attribute sets (OPT_+)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.strategy.mechanisms.mechanism import StrategyMeasurement
from adaptive_qs.strategy.mechanisms.whole_domain import WholeDomainMechanism
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.query_workload import QueryWorkload

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GroupedMechanism:
    """Every attribute set is answered by the mechanism of its group.

    Attributes:
        groups: a mechanism for each group, over the attributes that the group uses.
        shares: shape (groups,): part of the budget of each; sum 1.
        group_of: for each part, shape (sets,): the group that answers a set.
        lower_bound: no mechanism at privacy cost 1 has a smaller total error.
    """

    groups: tuple[WholeDomainMechanism, ...]
    shares: Array
    group_of: tuple[NDArray[np.int64], ...]
    lower_bound: float

    @property
    def workload(self) -> QueryWorkload:
        """What is answered."""
        return self.groups[0].workload

    @cached_property
    def total_error(self) -> float:
        """Σ weight · variance over all queries at privacy cost 1 (rows²)."""
        total = 0.0
        for number, part in enumerate(self.workload.parts):
            for index, weight in enumerate(part.weights):
                error = self._of(number, index).set_error(number, index)
                total += float(weight) * error / self._share(number, index)
        return total

    @property
    def statuses(self) -> Counter[Status]:
        """Of the groups' problems."""
        return Counter(group.status for group in self.groups)

    @property
    def num_measurements(self) -> int:
        """One for each group."""
        return len(self.groups)

    def measurement(self, index: int) -> StrategyMeasurement:
        """The measurement of a group."""
        return replace(self.groups[index].measurement(0), share=float(self.shares[index]))

    def needed(self, part: int, index: int) -> Sequence[int]:
        """The measurement of the set's group."""
        return [int(self.group_of[part][index])]

    def on_grid(self, grid_bits: int) -> GroupedMechanism:
        """The same with integer strategies, whose errors are those reported.

        Raises:
            ResourceExceeded: a strategy has too many cells to be measured.
        """
        groups = tuple(group.on_grid(grid_bits) for group in self.groups)
        return GroupedMechanism(groups, self.shares, self.group_of, self.lower_bound)

    def answers(self, part: int, index: int, kept: Mapping[int, Array]) -> Array:
        """Answers from the table of the set's group, shape (m,)."""
        group = int(self.group_of[part][index])
        return self.groups[group].answers(part, index, {0: kept[group]})

    def variances(self, part: int, index: int) -> Array:
        """Variance (rows²) of each of those answers at privacy cost 1, shape (m,)."""
        return self._of(part, index).variances(part, index) / self._share(part, index)

    def largest_variance(self) -> tuple[float, bool]:
        """Largest variance of all queries at cost 1; exact."""
        top = max(
            self._of(number, index).largest_of(number, index) / self._share(number, index)
            for number, part in enumerate(self.workload.parts)
            for index in range(len(part))
        )
        return top, True

    def bias_of(self, part: int, index: int) -> float:
        """Largest part of a query of one attribute set that its group does not measure."""
        return self._of(part, index).bias_of(part, index)

    def _of(self, part: int, index: int) -> WholeDomainMechanism:
        return self.groups[int(self.group_of[part][index])]

    def _share(self, part: int, index: int) -> float:
        return float(self.shares[int(self.group_of[part][index])])
