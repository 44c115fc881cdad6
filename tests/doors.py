"""The doors of a budget with inputs that a test states: events, counts, scores and values."""

from dataclasses import dataclass, replace

import numpy as np

from adaptive_qs.answering.measure import measure
from adaptive_qs.loop.candidates import ResidualIndex
from adaptive_qs.loop.estimates import CELLS_ALONE, Estimates
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.counts import (
    LinearQuery,
    Measurement,
    PrivateCounts,
    PrivateScores,
    PrivateTable,
    PrivateTexts,
    open_private,
)
from adaptive_qs.privacy.scores import PrivateErrors


@dataclass(frozen=True)
class Stated:
    """The counts themselves, with a sensitivity that the test states."""

    shape: tuple
    squared_norm: int
    largest: int = 1

    def answers(self, table):
        """Return the counts."""
        return table.reshape(-1, 1)


def measurement(mechanisms, event, values):
    """Return the measurement of some values that is charged as an event says."""
    shape, norm = np.shape(values), int(event.squared_sensitivity)
    assert norm == event.squared_sensitivity
    query = LinearQuery(event.purpose, event.columns, (Stated(shape, norm),))
    counts = PrivateCounts(values, mechanisms.ledger)
    return Measurement(query, counts, event.noise_variance)


def release_together(mechanisms, *pairs):
    """Add the noise of events to values."""
    found = mechanisms.release([measurement(mechanisms, *pair) for pair in pairs])
    return [noisy.reshape(np.shape(values)) for noisy, (_, values) in zip(found, pairs)]


def release_counts(mechanisms, event, values):
    """Add the noise of one event."""
    return release_together(mechanisms, (event, values))[0]


def select(mechanisms, event, scores, sensitivity):
    """Choose by scores of which one row changes any by so much."""
    return mechanisms.select(PrivateScores(scores, mechanisms.ledger, sensitivity), event.epsilon)


def discover_values(mechanisms, event, values, counts, at_most):
    """Find values that occur so often."""
    return mechanisms.discover_values(
        event, PrivateTexts(values, counts, mechanisms.ledger), at_most
    )


def measure_residuals(counter, mechanisms, noise_variances, strategies=CELLS_ALONE):
    """Measure residuals of the rows that a counter counts."""
    domain, replaced = counter.domain, mechanisms.ledger.unit.replaced
    estimates = Estimates.uniform(replace(domain, groupings=()), strategies, replaced)
    return estimates.measured(mechanisms.table(counter), mechanisms, noise_variances)


def measure_residual(counter, mechanisms, residual, noise_variance):
    """Measure one of them."""
    return measure_residuals(counter, mechanisms, {residual: noise_variance})[residual]


class Selector:
    """Errors of estimates that mechanisms of any budget can choose by."""

    def __init__(self, counter, cliques, weights, workers=1):
        table = PrivateTable(counter, Budget(1.0))
        self.errors = PrivateErrors(table, cliques, np.asarray(weights), workers)
        self.cliques, self._members = cliques, ResidualIndex(counter.domain, cliques)

    def refresh(self, estimates, changed, offered):
        """Compare what is on offer, after residuals changed (None: all of them)."""
        self.errors.outdate(self._members.containing([()] if changed is None else changed))
        return self.errors.refresh(estimates.model, estimates.thresholds, offered)

    def select(self, mechanisms, expected, epsilon, offered):
        """Choose a clique."""
        scores = self.errors.scores(expected, offered)
        exact = open_private(scores, scores.owner)
        again = PrivateScores(exact, mechanisms.ledger, scores.sensitivity)
        return self.cliques[np.flatnonzero(offered)[mechanisms.select(again, epsilon)]]


def measure_one(counter, mechanisms, measurement, units):
    """Measure one strategy on the rows that a counter counts."""
    counts = mechanisms.table(counter).marginals([measurement.clique])
    (noisy,) = measure(counter.domain, counts, mechanisms, [measurement], [units])
    return noisy
