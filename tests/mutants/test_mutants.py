"""Known privacy bugs, put in one by one: each is noticed, and nothing is without them."""

import pytest

from .mutant import MUTANTS
from .registry import is_killed

CHECKS = {mutant.check.__name__: mutant.check for mutant in MUTANTS.values()}


@pytest.mark.parametrize("name", CHECKS)
def test_the_check_is_silent_without_a_mutant(name):
    assert CHECKS[name]() == []


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_dies(name):
    assert is_killed(MUTANTS[name])
