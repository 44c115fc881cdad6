"""Seeded runs give what they gave before; see :mod:`tests.golden.digests` for what is held."""

import numpy as np
import pytest

from .digests import _rounded, changes, read, recipe, run_and_digest
from .runs import RUNS

KEPT = read()
REWRITE = "where the change is meant: python -m tests.golden.digests"
MARKED = [pytest.param(n, marks=[pytest.mark.slow] * run.slow) for n, run in RUNS.items()]


@pytest.mark.parametrize("name", MARKED)
def test_a_seeded_run_gives_what_it_gave(name):
    found = run_and_digest(name)
    kept = KEPT["runs"][name]
    assert found.keys() == kept.keys()
    if KEPT["recipe"] == recipe():
        assert not changes(kept, found, "exact"), f"other members; {REWRITE} {name!r}"


def test_every_run_has_digests():
    assert list(KEPT["runs"]) == list(RUNS)


@pytest.mark.parametrize(
    ("resumed", "undisturbed"), [("resumed", "pairs"), ("resumed after learning", "learnt")]
)
def test_a_resumed_run_has_the_digests_of_an_undisturbed_one(resumed, undisturbed):
    both = KEPT["runs"][resumed], KEPT["runs"][undisturbed]
    for member in ("ledger.json", "record.json", "reference.npy", "residuals.npy", "schema.json"):
        assert both[0][member] == both[1][member]


def test_rounding_sees_the_sixth_digit_and_not_the_ninth():
    values = np.array([1.0, 123.456, -1e-14])
    same = values * (1 + 1e-9) + 1e-13
    assert _rounded(values) == _rounded(same)
    assert _rounded(values) != _rounded(values * (1 + 1e-5))
    text = {"variance": "100000/3", "rows": 7}
    assert _rounded(text) == {"variance": 33333.3, "rows": 7}
