"""Bugs in what protects a row of the root of a set of tables with all rows below it."""

from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.compute as pc

from adaptive_qs.audit.replay import AuditReport, compare, record
from adaptive_qs.errors import DataError, LedgerError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.budget import Budget, Part
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import Unit
from adaptive_qs.table import joined
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.persons import PersonIndex
from adaptive_qs.table.tables import TableSet

from ..family import DEEP, DEEP_UNIT, drawn_tree, made_deep, published, without
from .mutant import replaced

TABLES = made_deep(60, seed=5, most=6)
LARGEST = TABLES["persons"]["home"].value_counts().index[0]
SCHEMA = TableSet.parse(DEEP)


def replayed_families():
    """Neighbours that differ by the household of most persons, with all rows below it; or no
    release, whose parts do not fit each other."""
    report, runs = AuditReport(), []
    for tables in (TABLES, without(TABLES, LARGEST)):
        job = partial(published, tables, schema=DEEP, rho=20.0)
        try:
            runs.append(record(job, Budget(20.0, 0, True, DEEP_UNIT), InsecureSeed(4), *runs))
        except ValueError as error:
            return [str(error)]
    compare(*runs, "families", report)
    return report.findings


def read_joined(tables, schema=SCHEMA):
    """The codes of the rows of each table that are measured, by table and column."""
    rows = joined.join_tables(tables, schema, 2**30)
    return {
        each.name: dict(zip(each.schema.names, read_table(rows[each.name], each.schema).columns))
        for each in schema.measured()
    }


def rows_of_nobody():
    """Tables whose rows' parents are not all there, on either level."""
    homes, persons = TABLES["homes"], TABLES["persons"]
    found = []
    for name, fewer in (("homes", homes[homes["home"] != LARGEST]), ("persons", persons[1:])):
        try:
            read_joined({**TABLES, name: fewer})
        except DataError:
            continue
        found.append(f"rows without a row of {name} are taken")
    return found


def rows_above_the_bounds():
    """On four levels, at most so many rows of each row that counts, and of no others."""
    found = []
    for seed in range(4):
        schema, tables = drawn_tree([None, 0, 1, 2], seed)
        codes = read_joined(tables, schema)
        for key in schema.keys:
            rows = len(codes[key.child][f"i{key.child[1:]}"])
            may = int(codes[key.parent][key.number].sum())
            found += [f"{rows} rows of {key.child} count, and {may} may"] if rows != may else []
    return found


def merged_keys():
    """Keys that differ by case alone: no row has the family of another one."""
    keys = TABLES["homes"]["home"]
    texts = dict(zip(keys, keys.map(lambda key: f"{'k' if key % 2 else 'K'} {key // 2}")))
    renamed = {n: TABLES[n].assign(home=TABLES[n]["home"].map(texts)) for n in ("homes", "persons")}
    sizes = [read_joined(tables)["homes"]["size"] for tables in (TABLES, {**TABLES, **renamed})]
    return [] if np.array_equal(*sizes) else ["families are merged"]


def merged_units():
    """Tables that another key relates are no part of a total: their families are others."""
    keys = ("persons.'owner' = homes.'home'", *DEEP_UNIT.related.keys[1:])
    other = replace(DEEP_UNIT, related=replace(DEEP_UNIT.related, keys=keys))
    found = []
    with TemporaryDirectory() as folder, suppress(LedgerError):
        path, total = Path(folder, "l.db"), (Cost.within(1.0), {"rho": 1.0})
        with closing(LedgerBook.create(path, *total, unit=DEEP_UNIT)) as book:
            book.check_unit(other)
            found.append("a ledger adds up costs for other families")
    with suppress(ValueError):
        Part(Budget(1.0, unit=DEEP_UNIT), Cost.within(0.5), other)
        found.append("a budget has a part for other families")
    return found


@replaced(Unit, "identity", "a total for families that other keys make", merged_units)
def without_keys(_, self):
    return self.protected


@replaced(Unit, "priced", "rows below the root charged as one row", replayed_families)
def one_row(original, self, event):
    return event if self.rows > 1 else original(self, event)


@replaced(Part, "release", "a part of a budget that does not charge the whole", replayed_families)
def free_part(_, self, events, draw, definition=""):
    self._charge(events, Cost.of(events))
    return draw()


@replaced(joined, "_find_parents", "rows whose parent is not there", rows_of_nobody)
def orphans(_, parents, above, column, label):
    return np.maximum(parents.among(above.keys), 0)


@replaced(joined, "_bound", "rows that exceed the bound", rows_above_the_bounds)
def unbounded(_, rows, schema, most, most_bytes):
    return rows


@replaced(joined.HeldRows, "below", "rows below a row that does not count", rows_above_the_bounds)
def moved_rows(_, self, above):
    found = pc.index_in(self.above.keys, value_set=above.keys).fill_null(0)
    return replace(self, above=above, places=found.to_numpy().astype(np.int64)[self.places])


@replaced(PersonIndex, "among", "keys compared without case", merged_keys)
def without_case(original, self, names):
    return original(replace(self, persons=pc.utf8_lower(self.persons)), pc.utf8_lower(names))
