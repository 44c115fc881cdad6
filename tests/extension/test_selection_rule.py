"""A selection rule is one class and one line of its registry."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.loop.loop import LoopSettings
from adaptive_qs.loop.select import SELECTION_RULES
from adaptive_qs.privacy.events import Purpose, SelectionEvent

ROWS = pd.DataFrame({"a": [0, 1, 2] * 40, "b": [0, 1, 2] * 40, "c": [0, 1] * 60})
SCHEMA = {"a": 3, "b": 3, "c": 2}


class AnyPair:
    """A fair draw among the pairs on offer: scores of zero, which no row moves."""

    def __init__(self, counter, candidates, weights, workers=1):
        self.candidates = candidates

    def refresh(self, model, changed=None):
        return 0

    def select(self, mechanisms, expected_error, epsilon, offered):
        pairs = [c for c, open_ in zip(self.candidates, offered) if open_ and len(c) == 2]
        zeros = np.zeros(len(pairs), dtype=np.int64)
        event = SelectionEvent(Purpose.SELECTION, (), Fraction(epsilon))
        return pairs[mechanisms.select(event, zeros, 1)]


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(SELECTION_RULES, "any-pair", AnyPair)
    monkeypatch.setattr(
        "adaptive_qs.run.tables.LoopSettings", partial(LoopSettings, rule="any-pair")
    )


def test_a_run_chooses_by_the_rule_that_its_settings_name(toy):
    fitted = Synthesizer(rho=5, workers=1, insecure_seed=1).fit(ROWS, schema=SCHEMA)
    assert fitted.release_.manifest.settings["rule"] == "any-pair"
    assert {len(past.clique) for past in fitted.rounds_} == {2}
    assert fitted.rho_spent_ <= 5
    made = fitted.sample(50, seed=0)
    assert made.shape == (50, 3)
    assert set(made["a"]) <= {0, 1, 2}


def test_an_unknown_rule_is_refused_with_the_names_there_are(toy):
    with pytest.raises(ValueError, match="rule is 'best': give one of aim, any-pair"):
        LoopSettings(rule="best")
