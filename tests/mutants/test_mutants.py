"""Known privacy bugs, put in one by one: each is noticed, and nothing is without them."""

import pytest

from . import checks
from .mutant import MUTANTS
from .registry import is_killed

CHECKS = {mutant.check.__name__: mutant.check for mutant in MUTANTS.values()}
TESTED_ELSEWHERE = {checks.neighbour_game.__name__}
"""The same game, of the same seed, is played by tests/audit/test_game.py."""


@pytest.mark.parametrize("name", sorted(CHECKS.keys() - TESTED_ELSEWHERE))
def test_the_check_is_silent_without_a_mutant(name):
    assert CHECKS[name]() == []


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_dies(name):
    assert is_killed(MUTANTS[name])
