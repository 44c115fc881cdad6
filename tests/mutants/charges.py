"""Bugs in what is paid."""

import math
from dataclasses import replace
from fractions import Fraction
from unittest import mock

from adaptive_qs.ledger.run import LedgerRun
from adaptive_qs.loop import loop, select
from adaptive_qs.loop.measure import measure_residual
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost
from adaptive_qs.privacy.mechanisms import Mechanisms, PrimitiveCall
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.selection import checked_scores

from . import checks
from .mutant import mutant, watched_counter


@mutant("a sensitivity of counts that is too small", checks.replay)
def counts_sensitivity():
    original = Mechanisms.release_together

    def cheaper(self, requests):
        half = Fraction(1, 2)
        return original(
            self,
            [
                replace(
                    request,
                    event=replace(
                        request.event,
                        squared_sensitivity=request.event.squared_sensitivity * half,
                        noise_variance=request.event.noise_variance * half,
                    ),
                )
                for request in requests
            ],
        )

    with mock.patch.object(Mechanisms, "release_together", cheaper):
        yield


@mutant("a sensitivity of scores that is too small", checks.replay)
def score_sensitivity():
    original = Mechanisms.select

    def cheaper(self, event, scores, sensitivity):
        return original(self, event, scores, max(1, sensitivity // 2))

    with mock.patch.object(Mechanisms, "select", cheaper):
        yield


@mutant("a score with two private terms and the sensitivity of one", checks.replay)
def two_terms():
    original = select.grid_l1

    def two(counter, model, clique):
        rows = int(counter.count(()))
        return original(counter, model, clique) + (rows << select.CELL_BITS)

    with mock.patch.object(select, "grid_l1", two):
        yield


@mutant("selections not charged", checks.replay, checks.recomputed)
def free_selection():
    def free(self, event, scores, sensitivity):
        scores = checked_scores(scores)
        self.entropy.begin(self._releases)
        self._releases += 1
        chosen = self._draw_selection(event, scores, sensitivity)
        self._tell(PrimitiveCall(event, scores, sensitivity, chosen))
        return chosen

    with mock.patch.object(Mechanisms, "select", free):
        yield


def unpaid(counter, model, clique):
    """Measure a clique on the side, at the program's own expense."""
    free = Mechanisms(Budget(10**6), InsecureSeed(1))
    model.update(clique, measure_residual(counter, free, clique, 9.0), 1 / 9.0)


@mutant("initial cliques not charged", checks.recomputed, checks.replay)
def free_cliques():
    original = loop.measure_one_way

    def more(counter, mechanisms, model, rho):
        original(counter, mechanisms, model, rho)
        unpaid(counter, model, (0, 1))

    with mock.patch.object(loop, "measure_one_way", more):
        yield


@mutant("the total measured twice and charged once", checks.recomputed)
def free_total():
    original = loop.measure_total

    def twice(counter, mechanisms, rho):
        model = original(counter, mechanisms, rho)
        unpaid(counter, model, ())
        return model

    with mock.patch.object(loop, "measure_total", twice):
        yield


@mutant("costs rounded down", checks.budget)
def rounded_down():
    def floor(cls, events):
        return cls(sum(math.floor(event.rho * UNITS_PER_RHO) for event in events), 0)

    with mock.patch.object(Cost, "of", classmethod(floor)):
        yield


@mutant("a share of delta that is not charged", checks.budget)
def free_delta():
    original = Cost.of.__func__

    def of(cls, events):
        return cls(original(cls, events).rho_units, 0)

    with mock.patch.object(Cost, "of", classmethod(of)):
        yield


@mutant("a budget with a tolerance", checks.budget)
def tolerant():
    def about(self, limit):
        slack = 1 + 1e-9
        return (
            self.rho_units <= limit.rho_units * slack
            and self.delta_units <= limit.delta_units * slack
        )

    with mock.patch.object(Cost, "fits", about):
        yield


@mutant("draws before the charge", checks.budget)
def drawn_first():
    original = Budget.release

    def release(self, events, draw, definition=""):
        outputs = draw()
        return original(self, events, lambda: outputs, definition)

    with mock.patch.object(Budget, "release", release):
        yield


@mutant("only the first of several releases charged", checks.budget, checks.replay)
def first_only():
    original = Budget.release

    def release(self, events, draw, definition=""):
        return original(self, events[:1], draw, definition)

    with mock.patch.object(Budget, "release", release):
        yield


@mutant("a retry that redraws noise", checks.retry)
def redrawn():
    original = LedgerRun.release

    def release(self, events, draw, definition=""):
        known = self._position < self.resumed
        outputs = original(self, events, draw, definition)
        return draw() if known else outputs

    with mock.patch.object(LedgerRun, "release", release):
        yield


@mutant("a budget that depends on the data", checks.replay)
def share_of_data():
    original = loop.initial_share

    with watched_counter() as seen:

        def share(domain, rho, total):
            return original(domain, rho, float(seen[0].count(())))

        with mock.patch.object(loop, "initial_share", share):
            yield
