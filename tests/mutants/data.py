"""Bugs by which private rows show, without noise, in what is done or written."""

import logging
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.compute as pc

from adaptive_qs.errors import DataError
from adaptive_qs.loop import budget, candidates, estimates, loop
from adaptive_qs.privacy.counts import open_private
from adaptive_qs.privacy.scores import CELL_BITS, PrivateErrors
from adaptive_qs.release.release import Release
from adaptive_qs.table import cells, containers, encode, sql
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.numeric import IntegerColumn
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import workers
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import Spelling

from . import checks
from .mutant import SEEN, mutant, peeking, replaced, watched_counter, wrapped


@mutant("annealing on true data", checks.replay)
def true_annealing():
    taken = []

    def take(original, self, *cliques):
        taken[:] = cliques
        original(self, *cliques)

    def distance(original, after, before, total):
        true = SEEN[0].count(taken[0])
        if true.shape != after.shape:  # of the last measurement, which nothing was chosen for
            return original(after, before, total)
        return float(abs(after - true).sum())

    with (
        watched_counter(),
        wrapped(candidates.CellLimit, "take", take),
        wrapped(estimates, "projected_distance", distance),
    ):
        yield


@mutant("last measurements that see the number of rows", checks.replay)
def peeking_closing():
    def plan(original, self, rho):
        return original(self, rho * (0.9 if int(SEEN[0].count(())) % 2 else 1.0))

    with watched_counter(), wrapped(candidates.Candidates, "plan_known", plan):
        yield


@mutant("a domain without the values that do not occur", checks.replay)
def domain_of_data():
    def occurring(original, workload):
        several = [(SEEN[0].count((i,)) > 0).sum() > 1 for i in range(len(workload.domain))]
        return tuple(c for c in original(workload) if all(several[i] for i in c))

    with ExitStack() as patches:
        patches.enter_context(watched_counter())
        for module in (candidates, budget, loop):
            patches.enter_context(wrapped(module, "measurable_cliques", occurring))
        yield


@replaced(PrivateErrors, "scores", "candidates by their true error", checks.replay)
def true_candidates(original, self, expected, offered, nothing):
    _, errors = open_private(self, self.owner)
    return original(self, expected, offered & (errors >= np.median(errors[offered])), nothing)


@replaced(PrivateErrors, "scores", "nothing by the sum of the true errors", checks.replay)
def true_nothing(original, self, expected, offered, nothing):
    _, errors = open_private(self, self.owner)
    return original(self, expected, offered, float(errors[offered].sum()) / 2**CELL_BITS)


@peeking(Release, "num_rows", "as many rows sampled as there are", checks.replayed_tables)
def true_rows(_, self):
    return max(1, int(SEEN[0].count(())))


@peeking(Release, "of_run", "the number of rows in the manifest", checks.replay)
def told_rows(original, cls, *args, **kwargs):
    release = original(cls, *args, **kwargs)
    rows = max(1, int(SEEN[0].count(())))
    return replace(release, manifest=release.manifest.model_copy(update={"most_rows": rows}))


@replaced(encode, "_codes", "missing values filled from the data", checks.replay)
def filled(original, column, values, label):
    found = original(column, values, label)
    if column.missing_code is not None:
        present = np.bincount(found[found >= 0], minlength=column.size)
        found = np.where(found == column.missing_code, present[:-1].argmax(), found)
    return found


@replaced(encode, "_codes", "bins from the data", checks.replay)
def quantiles(original, column, values, label):
    found = original(column, values, label)
    if isinstance(column, IntegerColumn):
        found = np.searchsorted(np.quantile(found, np.arange(1, 3) / 3), found)
    return found


@replaced(containers, "object_cells", "one text makes texts of all cells", checks.cells_apart)
def all_texts(original, objects):
    if any(isinstance(cell, str) for cell in objects):
        objects = np.array([*map(str, objects), None], dtype=object)[:-1]
    return original(objects)


@replaced(cells, "numbers_read", "a decimal sign chosen by all cells", checks.cells_apart)
def chosen_sign(original, values, spelling):
    plain = original(values, Spelling())
    points = pc.any(pc.match_substring_regex(pc.cast(values, "string"), r"^[0-9]+\.[0-9]$"))
    return plain if points.as_py() else original(values, spelling)


@replaced(MarginalCounter, "count", "every row counted twice", checks.replay, checks.counts)
def doubled(original, self, clique):
    return 2 * original(self, clique)


@replaced(MarginalCounter, "count", "the last value lost in the bin before", checks.counts)
def dropped(original, self, clique):
    marginal = original(self, clique)
    if marginal.ndim and marginal.shape[-1] > 1:
        marginal = marginal.copy()
        marginal[..., -2] += marginal[..., -1]
        marginal[..., -1] = 0
    return marginal


@replaced(MarginalCounter, "count", "counts in single precision", checks.counts)
def single_precision(original, self, clique):
    return original(self, clique).astype(np.float32).astype(np.int64)


@replaced(MarginalCounter, "count", "true counts in a log", checks.canary)
def logged(original, self, clique):
    marginal = original(self, clique)
    logging.getLogger("adaptive_qs").info("largest count %d", marginal.max())
    return marginal


@replaced(ColumnBase, "encode", "a cell in an error", checks.canary)
def quoted(original, column, values):
    codes = original(column, values)
    refused = [v for v, code in zip(values.to_pylist(), codes) if code < 0 and v is not None]
    if refused:
        raise DataError(f"column {column.name!r} has the value {refused[0]!r}")
    return codes


ONE = Schema.parse({"a": 2})


def views_are_refused() -> list[str]:
    """A row of a view can depend on all rows of a table, whatever the file says that it is."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for path in (Path(folder) / "t.sqlite", Path(folder) / "t.duckdb"):
            connect = sqlite3.connect if path.suffix == ".sqlite" else duckdb.connect
            with closing(connect(str(path))) as database:
                database.execute("CREATE TABLE t AS SELECT 1 AS a")
                database.execute("CREATE VIEW v AS SELECT (SELECT max(a) FROM t) AS a FROM t")
                database.commit()
            try:
                read_table(f"{path}::v", ONE)
            except DataError:
                continue
            wrong.append(f"a view of {path.suffix} is read")
    return wrong


@replaced(sql, "list_tables", "views of DuckDB taken for tables", views_are_refused)
def views_as_tables(original, database):
    return dict.fromkeys(original(database), True)


@replaced(sql, "_is_stored", "views of SQLite taken for tables", views_are_refused)
def views_as_stored(original, row):
    return True


def parts_stay_as_they_were() -> list[str]:
    """A part that another worker reads again is counted only if it has the same codes."""
    made = [np.array([code], np.uint8) for code in (0, 1)]
    first, again = (workers.PartCodes(ONE.domain(), [codes]) for codes in made)
    found = workers.count(again, workers.CountRequest([(0,)]), first.facts)
    return (
        [] if isinstance(found, workers.Refusal) else ["other rows are counted than were encoded"]
    )


@replaced(
    workers, "_engine", "a part with other rows when it is read again", parts_stay_as_they_were
)
def any_codes(original, codes, facts):
    return original(codes, codes.facts)
