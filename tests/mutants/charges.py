"""Bugs in what is paid."""

import math
from dataclasses import replace
from fractions import Fraction
from unittest import mock

from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.run import LedgerRun
from adaptive_qs.loop import budget, estimates, loop
from adaptive_qs.privacy import accounting
from adaptive_qs.privacy import scores as scoring
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.counts import Centering, Measurement, PrivateScores, open_private
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, Purpose, SelectionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms, PrimitiveCall
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.strategy.integer import GridFactor

from ..doors import measure_residual
from . import checks, entry_checks
from .mutant import SEEN, mutant, peeking, replaced


@replaced(Measurement, "event", "a sensitivity of counts that is too small", checks.replay)
def counts_sensitivity(original, self):
    event, half = original(self), Fraction(1, 2)
    return replace(
        event,
        squared_sensitivity=event.squared_sensitivity * half,
        noise_variance=event.noise_variance * half,
    )


@replaced(
    Centering,
    "answers",
    "groups charged as if their sums were taken off, and they are not",
    checks.levels,
)
def groups_with_sums(_, self, table):
    return self.largest * table


@peeking(loop, "with_levels", "groups of codes that depend on private counts", checks.levels)
def private_groups(original, domain, model, candidates, error):
    found = original(domain, model, candidates, error)
    return replace(found, groupings=found.groupings[int(SEEN[0].count(())) % 2 :])


@peeking(loop, "rho_to_fill", "halves measured again by private counts", checks.levels)
def private_dependence(original, *given):
    return given[-1] / 2 * (int(SEEN[0].count(())) % 2)


@mutant("a strategy charged for its shortest column", checks.strategies)
def shortest_column():
    shortest = property(lambda factor: int((factor.integers**2).sum(axis=0).min()))
    with mock.patch.object(GridFactor, "squared_norm", shortest):
        yield


@replaced(Mechanisms, "select", "a sensitivity of scores that is too small", checks.replay)
def score_sensitivity(original, self, scores, epsilon):
    exact, halved = open_private(scores, self.ledger), max(1, scores.sensitivity // 2)
    return original(self, PrivateScores(exact, self.ledger, halved), epsilon)


@replaced(
    scoring, "grid_l1", "a score with two private terms and the sensitivity of one", checks.replay
)
def two_terms(original, counter, *public):
    rows = int(counter.count(()))
    return original(counter, *public) + (rows << scoring.CELL_BITS)


@replaced(Mechanisms, "select", "selections not charged", checks.replay, checks.recomputed)
def free_selection(_, self, scores, epsilon):
    exact, event = open_private(scores, self.ledger), SelectionEvent(Purpose.SELECTION, (), epsilon)
    self.entropy.begin(self._releases)
    self._releases += 1
    chosen = self._draw_selection(event, exact, scores.sensitivity)
    self._observe(PrimitiveCall(event, exact, scores.sensitivity, chosen))
    return chosen


@mutant("private counts that any budget opens", checks.owners)
def open_to_all():
    def force(private, _):
        return private._Closed__exact

    with (
        mock.patch("adaptive_qs.privacy.counts.open_private", force),
        mock.patch("adaptive_qs.privacy.mechanisms.open_private", force),
    ):
        yield


def unpaid(table, model, clique):
    """Measure a clique on the side, at the program's own expense; the table has to be forced."""
    free, counter = Mechanisms(Budget(10**6), InsecureSeed(1)), open_private(table, table.owner)
    model.update(clique, measure_residual(counter, free, clique, 9.0), 1 / 9.0)


@replaced(
    loop, "measure_residuals", "initial cliques not charged", checks.recomputed, checks.replay
)
def free_cliques(original, table, mechanisms, estimates, precisions):
    variances = original(table, mechanisms, estimates, precisions)
    if () in precisions and len(precisions) > 1:
        unpaid(table, estimates.model, (0, 1))
    return variances


@replaced(loop, "measure_residuals", "the total measured twice and charged once", checks.recomputed)
def free_total(original, table, mechanisms, estimates, precisions):
    variances = original(table, mechanisms, estimates, precisions)
    if precisions.keys() == {()}:
        unpaid(table, estimates.model, ())
    return variances


@replaced(Cost, "of", "costs rounded down", checks.budget)
def rounded_down(_, cls, events):
    return cls(sum(math.floor(event.rho * UNITS_PER_RHO) for event in events), 0)


@replaced(Cost, "of", "a share of delta that is not charged", checks.budget)
def free_delta(original, cls, events):
    return cls(original(cls, events).rho_units, 0)


@replaced(Cost, "fits", "a budget with a tolerance", checks.budget)
def tolerant(_, self, limit):
    slack = 1 + 1e-9
    return (
        self.rho_units <= limit.rho_units * slack and self.delta_units <= limit.delta_units * slack
    )


@replaced(
    accounting, "_after_choice", "choices that exact accounting overlooks", entry_checks.filtered
)
def overlooked_choice(_, left, event):
    return left


@replaced(
    accounting,
    "_after_choice",
    "choices at their zCDP cost in exact accounting, whatever is left",
    entry_checks.filtered,
)
def choice_at_zcdp(_, left, event):
    return left - math.ceil(event.rho * UNITS_PER_RHO)


@mutant("discrete noise that counts as continuous noise of its width", entry_checks.filtered)
def noise_at_its_width():
    with mock.patch.object(accounting, "ROUNDING_VARIANCE", 0):
        yield


@replaced(
    LedgerRun,
    "_charge",
    "exact accounting that begins anew when a run is resumed",
    entry_checks.filtered,
)
def forgotten_charges(original, self, events, cost):
    before = self._filter_left
    original(self, events, cost)
    if self._position <= self.resumed:
        self._filter_left = before


@replaced(LedgerBook, "reserve", "a ledger that keeps no filter", entry_checks.filtered)
def unfiltered_ledger(original, self, request, inputs, cost, insecure=False, filtered=False):
    made = original(self, request, inputs, cost, insecure, False)
    made.filtered = filtered  # what the statement says
    made._filter_left = 10**30
    return made


@replaced(Budget, "release", "draws before the charge", checks.budget)
def drawn_first(original, self, events, draw, definition=""):
    outputs = draw()
    return original(self, events, lambda: outputs, definition)


@replaced(
    Budget, "release", "only the first of several releases charged", checks.budget, checks.replay
)
def first_only(original, self, events, draw, definition=""):
    return original(self, events[:1], draw, definition)


@replaced(LedgerRun, "release", "a retry that redraws noise", checks.retry)
def redrawn(original, self, events, draw, definition=""):
    known = self._position < self.resumed
    outputs = original(self, events, draw, definition)
    return draw() if known else outputs


@peeking(budget, "initial_share", "a budget that depends on the data", checks.replay)
def share_of_data(original, domain, candidates, rho, _, codes):
    return original(domain, candidates, rho, float(SEEN[0].count(())), codes)


@peeking(estimates, "effective_codes", "a smoothness that depends on the data", checks.levels)
def private_smoothness(original, noisy, *more):
    return original(noisy, *more) / (1 + int(SEEN[0].count(())) % 2)


@peeking(
    estimates, "measured_variance", "a reference that depends on private counts", checks.replay
)
def private_reference(original, *public):
    return original(*public) * (1 + 99 * (int(SEEN[0].count(())) % 2))


@peeking(budget, "selection_rho", "a price of the budget that depends on the data", checks.replay)
def price_of_data(original, *public):
    return original(*public) / (1 + int(SEEN[0].count(())) % 2)
