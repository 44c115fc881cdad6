"""Bugs in what protects persons."""

from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from unittest import mock

import numpy as np
import pandas as pd

import adaptive_qs
from adaptive_qs.audit.audit import audit
from adaptive_qs.errors import DataError, LedgerError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.loop import estimates
from adaptive_qs.privacy.counts import PrivateScores, open_private
from adaptive_qs.privacy.events import PartitionEvent
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.unit import NEIGHBOURS, ROWS, Relation, Unit
from adaptive_qs.run import states as runs
from adaptive_qs.table import persons
from adaptive_qs.table.cells import as_text, normalise
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.table.engines.local import Spool
from adaptive_qs.table.read import Rows, frame_source, open_source
from adaptive_qs.table.schema import Schema

from . import checks
from .mutant import mutant, replaced, wrapped

SCHEMA = Schema.parse(
    {
        "version": 1,
        "person": "who",
        "columns": [
            {"name": "a", "type": "integer", "min": 0, "max": 3},
            {"name": "b", "type": "categorical", "private_values": 3, "catch_all": "(other)"},
        ],
    }
)


@checks.audited
def replayed_persons():
    """Neighbours that differ by a whole person, of more rows than count."""
    return audit(SCHEMA, 2, 4, rhos=(2.0,), sample_every=10**6, rows_per_person=2)


@checks.audited
def replaced_persons():
    """Neighbours in which a person has other rows."""
    kind = {"rows_per_person": 2, "neighbours": "replace"}
    return audit(SCHEMA, 2, 4, rhos=(2.0,), sample_every=10**6, **kind)


@checks.audited
def replaced_rows():
    """Neighbours with another row in the place of one."""
    schema = SCHEMA.model_copy(update={"person": None})
    return audit(schema, 2, 2, rhos=(2.0,), sample_every=10**6, neighbours="replace")


HEAPED = Schema.parse(
    {
        "version": 1,
        "person": "who",
        "columns": [
            {"name": "a", "type": "integer", "min": 0, "max": 99, "bins": 2, "private_heaps": 9}
        ],
    }
)


@checks.audited
def replayed_values():
    """Neighbours with their rows in another order, of which values inside bins are counted."""
    return audit(HEAPED, 1, 4, rhos=(2.0,), sample_every=10**6, rows_per_person=1)


def units_of_a_ledger():
    """A run that protects something else than the total of its ledger."""
    with checks.tempfile.TemporaryDirectory() as folder:
        path = checks.Path(folder) / "l.db"
        book = LedgerBook.create(path, checks.Cost.within(1), {"rho": 1.0, "delta": 1e-9})
        try:
            book.reserve({}, "", checks.Cost.within(0.1), unit=Unit("who")).leave()
        except LedgerError:
            return []
        finally:
            book.close()
    return ["a person is protected by the budget of rows"]


def rows_of_nobody():
    """A table with a row that has no person."""
    rows = checks.np.array([["p", "1", "x"], ["", "1", "y"]], dtype=object)
    frame = pd.DataFrame(rows, columns=["who", "a", "b"])
    try:
        persons.ContributionBound.from_source(frame, SCHEMA, 1, 2**20)
    except DataError:
        return []
    return ["rows of nobody are taken"]


@replaced(Unit, "priced", "persons charged as rows", replayed_persons)
def free_group(_, self, event):
    return event


@replaced(Mechanisms, "select", "a person's choices drawn as those of a row", replayed_persons)
def free_choices(original, self, scores, epsilon):
    exact, of_row = open_private(scores, self.ledger), scores.sensitivity // self.ledger.unit.group
    return original(self, PrivateScores(exact, self.ledger, max(of_row, 1)), epsilon)


@replaced(Unit, "priced", "values of a person found as if they were of a row", replayed_persons)
def free_values(original, self, event):
    return event if isinstance(event, PartitionEvent) else original(self, event)


@mutant("another person in one's place charged as one more", replaced_persons)
def free_replacement():
    once = {**NEIGHBOURS, "replace": Relation(1, "replace")}
    alike = mock.patch("adaptive_qs.privacy.unit.NEIGHBOURS", once)
    with alike, mock.patch.object(Unit, "replaced", False):
        yield


@replaced(estimates, "_diameter", "opposite rows taken for rows apart", replaced_rows)
def nearer(original, domain, residual):
    return max(original(domain, residual) / 2, Fraction(1))


@replaced(
    persons.ContributionBound, "_read", "rows of a person that are not left out", replayed_persons
)
def all_rows(original, self, whole, wanted):
    kept = replace(self.kept, quotas=self.kept.quotas + 10**6)
    return original(replace(self, kept=kept), whole, wanted)


@replaced(persons, "_marked", "rows kept by who else is in the table", replayed_persons)
def marked_by_others(original, schema, chunk, whose, names, hashes):
    places, marks = original(schema, chunk, whose, names, hashes)
    return places, marks ^ np.uint64(len(whose.rows))


@replaced(persons, "_codes", "rows of one code kept by their order", replayed_values)
def codes_only(_, column, cells, label):
    return np.concatenate(persons.encode_chunk(column, cells, label)).astype(np.uint64)


def vague_persons():
    """Persons whose identifiers may stand for several, which have to be refused."""
    found = []
    for cells in (["Jos\udce9", "Jos\udce8"], [True, 1], [0.1, 0.2], [2.0**53, 2.0**53 + 2]):
        table = pd.DataFrame({"who": pd.Series(cells, dtype=object), "a": 0, "b": "x"})
        try:
            persons.count_persons(table, SCHEMA, 2**20)
        except DataError:
            continue
        found.append(f"{cells!r} are taken for persons")
    return found


@replaced(persons, "as_identifiers", "identifiers that may stand for several", vague_persons)
def vague(_, cells):
    normal = normalise(cells)
    return as_text(normal) if normal is not None else cells, ""


@replaced(
    persons.PersonIndex, "from_cells", "rows of nobody as those of one person", rows_of_nobody
)
def nobody(original, cls, name, cells, label):
    with wrapped(persons.pc, "equal", lambda _, texts, other: persons.pc.is_null(texts)):
        return original(cls, name, cells, label)


@replaced(LedgerBook, "check_unit", "a ledger of rows that counts persons", units_of_a_ledger)
def any_unit(_, self, unit):
    assert unit != ROWS


class Liar(Rows):
    """A table that gives other rows at each reading: 300 of one person after the first one."""

    def __init__(self):
        self.readings = 0

    @contextmanager
    def open(self):
        self.readings += 1
        rows = [(who, 0) for who in range(1, 50)] + [(0, 3)] * (1 if self.readings == 1 else 300)
        yield frame_source(pd.DataFrame(rows, columns=["who", "a"]))


def counted_as_checked() -> list[str]:
    """Whatever a source does between two readings, a person counts as often as was promised."""
    schema = {
        "version": 1,
        "person": "who",
        "columns": [{"name": "a", "type": "integer", "min": 0, "max": 3}],
    }
    found = []

    def noted(engine):
        found.append(int(engine.count_all([(0,)])[0][3]))
        return MarginalCounter(engine)

    with mock.patch.object(runs, "MarginalCounter", noted):
        adaptive_qs.answer(Liar(), schema, 1, rho=1.0, rows_per_person=1, beyond_limits=True)
    return [f"a person counts {rows} times, and K is 1" for rows in found if rows > 1]


@replaced(Spool, "open", "a table that is read anew for each pass", counted_as_checked)
def read_anew(original, self):
    return open_source(self.table, None)
