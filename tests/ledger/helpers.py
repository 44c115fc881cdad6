"""Small ledgers, runs and events."""

import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction

import numpy as np
import pytest

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.files import mark_path
from adaptive_qs.ledger.run import LedgerRun
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, GaussianEvent, Purpose, SelectionEvent

REQUEST = {"command": "synthesize", "schema": "5" * 64}
INPUTS = "ab" * 32
NAMES = ("number", "time", "body", "hash")


def new_book(path, units=1_000, delta_units=0):
    return LedgerBook.create(path, Cost(units, delta_units), {"rho": 1.0, "delta": 1e-9})


def reserve(book, units, request=REQUEST) -> LedgerRun:
    return book.reserve(request, INPUTS, Cost(units))


def costing(units, column="counts"):
    """An event of exactly so many units."""
    return GaussianEvent(Purpose.STRATEGY, (column,), 1, Fraction(UNITS_PER_RHO, 2 * units))


def choice():
    return SelectionEvent(Purpose.SELECTION, (), 2.0**-28)  # 2**-59 rho: two units


def released(run, units=3, outputs=(1, 2), column="counts"):
    """Release a vector of counts."""
    vector = np.array(outputs, dtype=np.int64)
    return run.release([costing(units, column)], lambda: [vector])[0]


def crash(run):
    """What the death of the process would do to a run: its lock and its connection are gone."""
    run._lock.release()
    run._store.close()


def copied(path, to):
    """A copy of a ledger and its mark."""
    shutil.copy(mark_path(path), mark_path(to))
    return shutil.copy(path, to)


def filled(path):
    """A ledger with a closed run, and an open one that released twice."""
    book = new_book(path)
    first = reserve(book, 100)
    released(first, 30)
    first.finish()
    book = LedgerBook(path)
    second = reserve(book, 200)
    released(second, 10, range(50), "counts of age")
    second.release([choice(), costing(5)], lambda: [4, np.arange(7)])
    crash(second)
    return path


def rows_of(path):
    """All entries."""
    with closing(LedgerBook(path)) as book:
        return list(book.rows())


def refusal(path):
    """The line by which a ledger is refused."""
    with pytest.raises(LedgerError) as caught:
        LedgerBook(path)
    return str(caught.value)


def execute(path, *statements):
    """What someone with an editor for databases may do; how many rows each statement changed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return [connection.execute(*statement).rowcount for statement in statements]
