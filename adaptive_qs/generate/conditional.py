"""Rows of a fitted model that meet a condition, and kinds of rows in equal numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.cliques import Rows
from adaptive_qs.domain import Domain
from adaptive_qs.generate.chains import Array, Chains, Chances
from adaptive_qs.generate.exact import ExactChains
from adaptive_qs.generate.rows import Fitted, MarginalTracker, draw_pages
from adaptive_qs.generate.zeros import Zeros
from adaptive_qs.machine import StepProgress

# The requested rows are a union of boxes: sets of values, one set for each attribute. Inside a box
# the model keeps its form (the weights of single values change), so that chains can go on in it.
# The shares of several boxes say how many rows belong into each.

LEAST_ROWS = 2**13
"""Fewest rows of the chains of all boxes together."""
LEAST_OF_BOX, MOST_OF_BOX = 2**9, 2**14
"""Fewest and most rows by which the share of a box is estimated."""
MOST_BOXES = 256
"""Largest number of boxes of all kinds together."""

Kinds = Sequence[Sequence[Chances]]
"""Kinds of rows, each a list of disjoint boxes; a table has equal numbers of all kinds."""


class NoRowsError(ValueError):
    """A model has no rows of a kind.

    Attributes:
        kind: its number.
    """

    def __init__(self, kind: int) -> None:
        super().__init__(f"the model has no rows of kind {kind}")
        self.kind = kind


class SideBySide:
    """Chains of several boxes, as parts of one table."""

    def __init__(
        self, parts: Sequence[Chains | ExactChains], kinds: Sequence[int], rng: np.random.Generator
    ) -> None:
        self.rng = rng
        self._parts = parts
        self.rows: Rows = np.concatenate([part.rows for part in parts])
        ends = np.cumsum([0, *kinds])
        shuffled = [first + rng.permutation(count) for first, count in zip(ends, kinds)]
        turn = np.concatenate([np.arange(count) for count in kinds])
        self._order = np.concatenate(shuffled)[np.argsort(turn, kind="stable")]
        self._picked = 0

    def advance(self, times: int = 1) -> Rows:
        """Return states of all parts, one below the other, in a new array."""
        states = [part.advance(times).reshape(times, *part.rows.shape) for part in self._parts]
        return np.concatenate(states, axis=1).reshape(-1, self.rows.shape[1])

    def pick(self, count: int, size: int) -> NDArray[np.intp]:
        """Return positions of rows of all kinds in turn, after those of the last page, shuffled."""
        number = np.arange(count)
        place = self._order[(self._picked + number) % len(self.rows)]
        self._picked += count
        return self.rng.permutation(number // len(self.rows) * len(self.rows) + place)


@dataclass(frozen=True)
class SelectedRows:
    """Rows of a model that belong to some kinds.

    Attributes:
        states: such rows.
        watch: the marginals of a table of such rows.
        shares: the share of each kind among all rows of the model.
    """

    states: SideBySide
    watch: MarginalTracker
    shares: tuple[float, ...]

    def draw(
        self, num_rows: int, passes: int, workers: int, progress: StepProgress | None = None
    ) -> Iterator[Rows]:
        """Yield rows in equal numbers of all kinds; see :func:`draw_pages`."""
        states = self.states
        return draw_pages(states, self.watch, num_rows, passes, workers, progress, states.pick)


def select_boxes(
    domain: Domain, fitted: Fitted, kinds: Kinds, num_rows: int, zeros: Zeros = ()
) -> SelectedRows:
    """Select the rows of a model that belong to some kinds.

    Args:
        domain: the attributes.
        fitted: the model.
        kinds: disjoint boxes for each kind, ``MOST_BOXES`` in all.
        num_rows: rows of a table, if known.
        zeros: cells without rows; the model has none there.

    Raises:
        NoRowsError: the model has no rows of some kind.
    """
    chains = fitted.chains
    boxes = sum(map(len, kinds))
    found = int(np.clip(len(chains.rows) // boxes, LEAST_OF_BOX, MOST_OF_BOX))
    rows = min(max(num_rows, LEAST_ROWS), max(len(chains.rows), LEAST_ROWS))
    each = -(-rows // len(kinds))
    parts: list[Chains | ExactChains] = []
    shares = []
    for kind in kinds:
        inside = [chains.within(_rarest_first(fitted, box), found) for box in kind]
        of_box = np.array([share for _, share in inside])
        shares.append(float(of_box.sum()))
        if not shares[-1] > 0:
            raise NoRowsError(len(shares) - 1)
        counts = _apportion(of_box, each, chains.rng)
        parts += [part.keep(count) for (part, _), count in zip(inside, counts) if count]
    side_by_side = SideBySide(parts, [each] * len(kinds), chains.rng)
    means = [np.zeros_like(fitted.means[c], dtype=np.float32) for c in fitted.watched]
    for part in parts:
        part.add_marginals(means, fitted.watched)
    watch = MarginalTracker(domain, fitted.watched, means, zeros)
    return SelectedRows(side_by_side, watch, tuple(shares))


def _rarest_first(fitted: Fitted, box: Chances) -> Chances:
    rows = fitted.chains.rows
    share = {i: float(chance[rows[:, i]].mean()) for i, chance in box.items()}
    return {i: box[i] for i in sorted(box, key=lambda i: share[i])}


def _apportion(shares: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Return whole numbers in these proportions with a given sum, each within one of its own."""
    up_to = np.cumsum(shares) / np.sum(shares) * count
    up_to[-1] = count
    return np.diff(np.floor(up_to + rng.random()), prepend=0.0).astype(int).tolist()
