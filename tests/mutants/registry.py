"""All mutants, and whether each dies."""

from . import charges, data, families, noise, persons, wiring  # noqa: F401  (they register their mutants)
from .mutant import MUTANTS, Mutant


def is_killed(mutant: Mutant) -> bool:
    """Whether the mutant's check finds something; one that can stop at the first does."""
    with mutant.apply():
        return getattr(mutant.check, "finds", mutant.check)() not in (False, [])


def kill_all() -> dict[str, bool]:
    """Whether each mutant is noticed by its check, which is silent without it."""
    silent = {check: not check() for check in {m.check for m in MUTANTS.values()}}
    return {name: silent[m.check] and is_killed(m) for name, m in MUTANTS.items()}
