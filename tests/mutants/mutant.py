"""A known privacy bug, and the check that must notice it."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
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


def wrapped(owner, name, function):
    """A patch of a function, method or property: what replaces it is given the original first."""
    original = inspect.getattr_static(owner, name)
    if isinstance(original, property):
        new = property(partial(function, original.fget))
    elif isinstance(original, classmethod):
        inner = original.__func__
        new = classmethod(lambda cls, *args, **named: function(inner, cls, *args, **named))
    else:

        def new(*args, **named):
            return function(original, *args, **named)

    return mock.patch.object(owner, name, new)


def replaced(owner, name, what, *checks):
    """Register a function as a mutant: it stands in the place of one that it is given first."""

    def register(function):
        def apply():
            with wrapped(owner, name, function):
                yield

        return mutant(what, *checks)(apply)

    return register


SEEN: list[MarginalCounter] = []
"""In mutants that look at private rows: the counter of the table read last."""


def watched_counter():
    """A patch that keeps it there."""

    def keep(original, self, table):
        original(self, table)
        SEEN[:] = [self]

    return wrapped(MarginalCounter, "__init__", keep)


def peeking(owner, name, what, *checks):
    """Register a function that looks at private rows, by ``SEEN``."""

    def register(function):
        def apply():
            with watched_counter(), wrapped(owner, name, function):
                yield

        return mutant(what, *checks)(apply)

    return register
