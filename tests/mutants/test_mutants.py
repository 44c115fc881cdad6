"""Known privacy bugs, put in one by one: each is noticed, and nothing is without them."""

import pytest

from . import checks
from .mutant import MUTANTS
from .registry import is_killed

CHECKS = {mutant.check.__name__: mutant.check for mutant in MUTANTS.values()}
SLOW = {
    "replay", "entropy_handed", "resumed_as_begun", "ceilings", "selection", "every_form",
    "charged_once", "tiny_blocks", "independent_noise",
    "missing values filled from the data", "a table recognised by a hash without a key",
    "noise too small by the square root of two (neighbour_game)",
    "the seed of the sampled table as that of the noise",
    "permute-and-flip charged as the exponential mechanism",
    "a selection twice as sharp as charged", "candidates by their true error",
    "the grid of answers by the rows that there are",
    "as many cells measured as there are rows",
}  # fmt: skip
"""Checks and mutants that take over a second: pytest -m slow."""
TESTED_ELSEWHERE = {checks.neighbour_game.__name__}
"""The same game, of the same seed, is played by tests/audit/test_game.py."""


def timed(names):
    """The names, those that take long with the mark."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


def test_what_is_slow_is_there():
    assert CHECKS.keys() | MUTANTS.keys() >= SLOW


@pytest.mark.parametrize("name", timed(sorted(CHECKS.keys() - TESTED_ELSEWHERE)))
@pytest.mark.one_in(4)
def test_the_check_is_silent_without_a_mutant(name):
    assert CHECKS[name]() == []


@pytest.mark.parametrize("name", timed(MUTANTS))
@pytest.mark.one_in(4)
def test_the_mutant_dies(name):
    assert is_killed(MUTANTS[name])
