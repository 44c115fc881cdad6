"""Rows of a fitted model that meet a condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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
"""Largest number of boxes."""


class NoRowsError(ValueError):
    """A model has no rows in any box."""


class SideBySide:
    """Chains of several boxes, as parts of one table."""

    def __init__(self, parts: Sequence[Chains | ExactChains], rng: np.random.Generator) -> None:
        self.rng = rng
        self._parts = parts
        self.rows: Rows = np.concatenate([part.rows for part in parts])

    def advance(self, times: int = 1) -> Rows:
        """Return states of all parts, one below the other, in a new array."""
        states = [part.advance(times).reshape(times, *part.rows.shape) for part in self._parts]
        return np.concatenate(states, axis=1).reshape(-1, self.rows.shape[1])


@dataclass(frozen=True)
class SelectedRows:
    """Rows of a model that meet a condition.

    Attributes:
        states: such rows.
        watch: the marginals of a table of such rows.
        share: their share among all rows of the model.
    """

    states: SideBySide
    watch: MarginalTracker
    share: float

    def draw(
        self, num_rows: int, passes: int, workers: int, progress: StepProgress | None = None
    ) -> Iterator[Rows]:
        """Yield such rows; see :func:`draw_pages`."""
        return draw_pages(self.states, self.watch, num_rows, passes, workers, progress)


def select_boxes(
    domain: Domain, fitted: Fitted, boxes: Sequence[Chances], num_rows: int, zeros: Zeros = ()
) -> SelectedRows:
    """Select the rows of a model that are in some disjoint boxes.

    Args:
        domain: the attributes.
        fitted: the model.
        boxes: ``MOST_BOXES`` at most.
        num_rows: rows of a table, if known.
        zeros: cells without rows; the model has none there.

    Raises:
        NoRowsError: the model has no rows there.
    """
    chains = fitted.chains
    found = int(np.clip(len(chains.rows) // len(boxes), LEAST_OF_BOX, MOST_OF_BOX))
    rows = min(max(num_rows, LEAST_ROWS), max(len(chains.rows), LEAST_ROWS))
    inside = [chains.within(_rarest_first(fitted, box), found) for box in boxes]
    shares = np.array([share for _, share in inside])
    if not shares.sum() > 0:
        raise NoRowsError
    counts = _apportion(shares, rows, chains.rng)
    parts = [part.keep(count) for (part, _), count in zip(inside, counts) if count]
    means = [np.zeros_like(fitted.means[c], dtype=np.float32) for c in fitted.watched]
    for part in parts:
        part.add_marginals(means, fitted.watched)
    watch = MarginalTracker(domain, fitted.watched, means, zeros)
    return SelectedRows(SideBySide(parts, chains.rng), watch, float(shares.sum()))


def _rarest_first(fitted: Fitted, box: Chances) -> Chances:
    rows = fitted.chains.rows
    share = {i: float(chance[rows[:, i]].mean()) for i, chance in box.items()}
    return {i: box[i] for i in sorted(box, key=lambda i: share[i])}


def _apportion(shares: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Return whole numbers in these proportions with a given sum, each within one of its own."""
    up_to = np.cumsum(shares) / np.sum(shares) * count
    up_to[-1] = count
    return np.diff(np.floor(up_to + rng.random()), prepend=0.0).astype(int).tolist()
