"""Accountants of another library find the ε that releases state, and not more."""

import copy
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from . import accountants
from .accountants import figures, recompute_kinds, released
from .curves import KINDS

FEW = ("one table, choices", "one table, private values")


@pytest.mark.parametrize(
    "kind", [k if k in FEW else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_the_stated_epsilon_is_that_of_the_charges(kind):
    (found,) = recompute_kinds(1, mus=(0.45,), kinds={kind: KINDS[kind]}).values()
    assert found["passed"], found


def test_charges_that_cost_more_than_is_stated_are_found():
    artefacts = KINDS["one table, choices"](np.random.default_rng(0), 0.45).run(0).artefacts
    manifest, records = released(artefacts)
    assert figures(manifest, records)["passed"]
    for mechanism, field in (("discrete gaussian", "noise_variance"), ("exponential", "epsilon")):
        changed = copy.deepcopy(records)
        for record in changed:
            if record["mechanism"] == mechanism:
                factor = Fraction(9, 10) if field == "noise_variance" else 8
                record[field] = str(Fraction(record[field]) * factor)
        assert not figures(manifest, changed)["passed"]


def test_the_worst_choice_has_bounded_range():
    lower, upper = accountants.worst_choice(0.5, 0.3)
    for law in (lower, upper):
        assert sum(np.exp(list(law.values()))) == pytest.approx(1)
    ratios = [upper[k] - lower[k] for k in lower]
    assert max(ratios) - min(ratios) == pytest.approx(0.5)
