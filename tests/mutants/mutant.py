"""A known privacy bug, and the check that must notice it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from unittest import mock

from adaptive_qs.table.coded import MarginalCounter


@dataclass(frozen=True)
class Mutant:
    """A bug that can be put in.

    Attributes:
        apply: puts it in for the length of a block.
        check: returns what it finds wrong; nothing where the bug is not in.
    """

    apply: Callable[[], AbstractContextManager]
    check: Callable[[], list[str]]


MUTANTS: dict[str, Mutant] = {}
"""Every mutant by what it does wrong."""


def mutant(name: str, *checks: Callable[[], list[str]]):
    """Register a context manager as a mutant, once for each check that must notice it."""

    def register(function):
        for check in checks:
            key = name if len(checks) == 1 else f"{name} ({check.__name__})"
            assert key not in MUTANTS
            MUTANTS[key] = Mutant(contextmanager(function), check)
        return function

    return register


@contextmanager
def watched_counter() -> Iterator[list[MarginalCounter]]:
    """The counter of the table read last, as a bug that looks at private rows would see it."""
    seen: list[MarginalCounter] = []
    original = MarginalCounter.__init__

    def keep(self, table):
        original(self, table)
        seen[:] = [self]

    with mock.patch.object(MarginalCounter, "__init__", keep):
        yield seen
