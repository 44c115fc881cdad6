"""Bugs in how the parts are put together: what is handed to whom. No formula is touched."""

import hashlib
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa

from adaptive_qs.answering import api as answers
from adaptive_qs.answering.api import Answers
from adaptive_qs.answering.measure import grid_bits
from adaptive_qs.answering.plan import Batch
from adaptive_qs.learn import schema as learning
from adaptive_qs.learn.schema import _Histograms
from adaptive_qs.ledger import files
from adaptive_qs.ledger.run import LedgerRun
from adaptive_qs.privacy import budget as privacy_budget
from adaptive_qs.privacy import counts
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.counts import Identity, PrivateValues, open_private
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.release import facts, release
from adaptive_qs.run import states as runs
from adaptive_qs.run import tables
from adaptive_qs.run.memory import plan_memory
from adaptive_qs.run.states import CheckedRun, ReadRun, SpendingRun
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table import encode
from adaptive_qs.table import read as readers
from adaptive_qs.table.columns.category import CategoricalColumn
from adaptive_qs.table.engines import local
from adaptive_qs.table.engines.local import Spool

from . import checks, entry_checks
from .mutant import mutant, replaced, wrapped

# Blocks


def _cut(overlap, original, private, cells):
    values, size = open_private(private, private.owner), counts.BLOCK_VALUES
    starts = range(0, max(values.size, 1), size)
    blocks = [values[max(0, at - overlap * (at > 0)) : at + size] for at in starts]
    return original(PrivateValues(np.concatenate(blocks), private.owner), *cells)


@replaced(
    PrivateValues,
    "histograms",
    "blocks of values to learn from that overlap by a row",
    entry_checks.tiny_blocks,
)
def overlapping(original, self, *cells):
    return _cut(1, original, self, cells)


@replaced(
    PrivateValues,
    "histograms",
    "blocks of values to learn from that lose a row",
    entry_checks.tiny_blocks,
)
def gapped(original, self, *cells):
    return _cut(-1, original, self, cells)


@replaced(
    readers,
    "open_file",
    "the first row of every later block of a file lost",
    entry_checks.tiny_blocks,
)
@contextmanager
def lost_rows(original, path):
    with original(path) as source:

        def read(wanted):
            for number, chunk in enumerate(source.read(wanted)):
                columns = tuple(c[1:] if number else c for c in chunk.columns)
                yield replace(chunk, columns=columns)

        yield replace(source, read=read)


# Ceilings: tables measured with a plan that was changed by the table.


@replaced(tables, "measure", "as many cells measured as there are rows", entry_checks.ceilings)
def cells_of_rows(original, counter, schema, workload, target, work, *others):
    limits = replace(work.limits, measured_cells=int(counter.count(())))
    return original(counter, schema, workload, target, replace(work, limits=limits), *others)


@replaced(tables, "measure", "memory planned for the rows that there are", entry_checks.ceilings)
def memory_of_rows(original, counter, schema, workload, target, work, *others):
    memory = work.limits.max_memory_bytes
    found = plan_memory(workload, int(counter.count(())), memory)
    limits = replace(work.limits, measured_cells=found.measured_cells)
    return original(counter, schema, workload, target, replace(work, limits=limits), *others)


@replaced(
    tables, "measure", "the largest table that fits is the one that came", entry_checks.ceilings
)
def most_rows_of_table(original, counter, schema, workload, target, work, *others):
    limits = replace(work.limits, countable_rows=int(counter.count(())))
    return original(counter, schema, workload, target, replace(work, limits=limits), *others)


@mutant("the grid of answers by the rows that there are", entry_checks.ceilings)
def grid_of_rows():
    planned = []

    def plan(original, self):
        planned[:] = [original(self)]
        return planned[0]

    def answer_sets(original, mechanism, table, mechanisms, units):
        # As of far longer tables: the grid of short ones does not depend on their rows.
        rows = int(open_private(table, table.owner).count(())) << 40
        finer = planned[0].mechanism.on_grid(grid_bits(mechanism, units, rows))
        return original(finer, table, mechanisms, units)

    with wrapped(Batch, "plan", plan), wrapped(answers, "answer_sets", answer_sets):
        yield


# Entropy


def _begun(original, read, entropy):
    """Return a run with another source of entropy, made from its ledger."""
    with mock.patch.object(runs, "Mechanisms", Mechanisms):
        run = original(read)
    made = run.mechanisms
    run.mechanisms = runs.Mechanisms(made.ledger, entropy(made.ledger) or made.entropy)
    return run


class Disguised(InsecureSeed):
    """A seed that says it is none."""

    insecure = False


def _published(ledger):
    place = ledger.place
    return place and Disguised(int(place.ledger, 16) + place.run)


@replaced(
    ReadRun, "begin", "noise on a ledger seeded from what is published", entry_checks.entropy_handed
)
def published_seed(original, read):
    return _begun(original, read, _published)


@replaced(ReadRun, "begin", "noise of a resumed run from a seed", entry_checks.entropy_handed)
def resumed_seed(original, read):
    return _begun(original, read, _published if read.checked.options.resume else lambda _: None)


@replaced(ReadRun, "begin", "noise of learnt columns from the schema", entry_checks.entropy_handed)
def schema_seed(original, read):
    schema = read.checked.root.schema
    seed = InsecureSeed(int(schema.fingerprint[:8], 16)) if schema.private_columns else None
    return _begun(original, read, lambda _: seed)


@mutant("the seed of the sampled table as that of the noise", entry_checks.entropy_handed)
def sampling_seed():
    seeds = []

    def chosen_seed(original, seed):
        seeds[:] = [original(seed)]
        return seeds[0]

    def entropy(original, options):
        return InsecureSeed(seeds[0]) if seeds else original(options)

    with wrapped(release, "chosen_seed", chosen_seed), wrapped(runs, "choose_entropy", entropy):
        yield


@replaced(
    Mechanisms,
    "_draw_counts",
    "noise broadcast along an axis of four attributes and more",
    entry_checks.independent_noise,
)
def broadcast(original, self, event, values):
    if values.ndim < 4:
        return original(self, event, values)
    first = values[..., :1]
    return values + (original(self, event, first) - first)


# Budgets and ledgers


@replaced(Identity, "squared_norm", "two histograms charged as one", checks.counted_heaps)
def one_histogram(_, self):
    return 1


@mutant("exact rows on frequent values in the schema", checks.counted_heaps)
def exact_heaps():
    seen = []

    def counted_exactly(original, self, *cells):
        found = original(self, *cells)
        seen.append(open_private(found, found.owner))
        return found

    def counted(original, self, noisy, noise_std):
        return original(self, seen[-1], noise_std)

    with (
        wrapped(PrivateValues, "histograms", counted_exactly),
        wrapped(_Histograms, "counted", counted),
    ):
        yield


@replaced(learning, "learn_schema", "learning on a budget of its own", entry_checks.charged_once)
def learning_aside(original, schema, gathered, mechanisms, cost):
    if not schema.private_columns:
        return schema
    aside = type(mechanisms)(Budget(cost.rho, cost.delta), mechanisms.entropy)
    return original(schema, gathered, aside, cost)


def _on_a_new_budget(run):
    ledger, entropy = run.mechanisms.ledger, run.mechanisms.entropy
    budget = Budget(ledger.limit.rho, ledger.limit.delta, ledger.filtered)
    run.mechanisms = runs.Mechanisms(budget, entropy)


@replaced(SpendingRun, "learn", "a new budget after learning", entry_checks.charged_once)
def budget_again(original, self, clock):
    original(self, clock)
    if self.mechanisms.ledger.events:
        _on_a_new_budget(self)


@replaced(ReadRun, "begin", "a run on a ledger counted in memory", entry_checks.charged_once)
def counted_in_memory(original, self):
    run = original(self)
    _on_a_new_budget(run)
    return run


@replaced(LedgerRun, "leave", "a budget given back after a crash", entry_checks.charged_once)
def given_back(_, self):
    if self._lock.held:
        with self._store.writing():
            self._store.end_run(self.number, finished=False)
    self._lock.release()
    self._store.close()


@replaced(facts, "_kind", "learnt bins told as declared", entry_checks.charged_once)
def told_as_declared(original, event):
    return "selections" if (kind := original(event)) == "values" else kind


# Recognising what is resumed


def _without(request, name):
    return {k: v for k, v in request.items() if k != name}


@replaced(CheckedRun, "request", "a run resumed with a noise seed", entry_checks.resumed_as_begun)
def forgotten_seed(original, checked):
    return _without(original(checked), "noise seed")


@replaced(
    CheckedRun,
    "request",
    "a run resumed with another share for learning",
    entry_checks.resumed_as_begun,
)
def forgotten_share(original, checked):
    return _without(original(checked), "learning share")


@replaced(CheckedRun, "request", "a run resumed with another schema", entry_checks.resumed_as_begun)
def forgotten_schema(original, checked):
    return _without(original(checked), "schema")


@replaced(
    local, "sum_rows", "a table recognised by its first column", entry_checks.resumed_as_begun
)
def recognised_by_a_column(original, names, columns, label):
    return original(names[:1], columns[:1], label)


@replaced(Spool, "note_sum", "a table recognised by its last rows", entry_checks.resumed_as_begun)
def recognised_by_no_row(original, spool, found):
    return original(spool, 0)


@replaced(
    files, "keyed_hash", "a table recognised by a hash without a key", entry_checks.resumed_as_begun
)
def plain_hash(_, path, chunks, make=True):
    return hashlib.sha256(b"".join(chunks)).hexdigest()


# What callers get


@mutant("answers that can be read again", entry_checks.read_once)
def read_again():
    def batches(original, self, *given):
        self._is_unread = True
        self._read._opening = threading.Lock()
        if not self._read.checked.root.schema.private_columns:
            self._run = None
        return original(self, *given)

    with wrapped(Answers, "batches", batches), wrapped(ReadRun, "close", lambda *_: None):
        yield


@mutant("a release kept for the next table", entry_checks.refitted)
def kept_release():
    kept = {}

    def synthesize(original, read, clock):
        schema = read.checked.schema
        if schema.fingerprint not in kept:
            kept[schema.fingerprint] = original(read, clock)
        return kept[schema.fingerprint]

    with wrapped(tables, "synthesize", synthesize):
        yield


# Frames


@replaced(
    readers,
    "frame_source",
    "cells as text wherever one of their column has another type",
    entry_checks.every_form,
)
def one_type(original, table):
    if isinstance(table, pd.DataFrame):
        mixed = [
            name
            for name in table
            if table[name].dtype == object and table[name].dropna().map(type).nunique() > 1
        ]
        table = table.assign(**{name: table[name].map(str) for name in mixed})
    return original(table)


@replaced(encode, "_codes", "codes of a category from the frame", entry_checks.frames_in_and_out)
def frame_codes(original, column, values, label):
    if isinstance(column, CategoricalColumn) and pa.types.is_dictionary(values.type):
        return np.minimum(values.indices.to_numpy(), column.size - 1)
    return original(column, values, label)


def _sampled(kept_of, sample):
    """Sampled frames that follow something of the private one."""
    kept = []

    def fitted(original, self, table, y=None, *, schema=None):
        kept[:] = [kept_of(table)]
        return original(self, table, schema=schema)

    def sampled(original, self, num_rows=None, seed=None):
        return sample(partial(original, self), num_rows, seed, kept[0])

    with wrapped(Synthesizer, "fit", fitted), wrapped(Synthesizer, "sample", sampled):
        yield


@mutant("sampled frames in the categories of the private one", entry_checks.frames_in_and_out)
def frame_categories():
    yield from _sampled(
        lambda table: table.dtypes["a"],
        lambda sample, num_rows, seed, kind: sample(num_rows, seed).astype({"a": kind}),
    )


@mutant("as many rows sampled as the private frame has", entry_checks.frames_in_and_out)
def frame_rows():
    yield from _sampled(len, lambda sample, num_rows, seed, rows: sample(num_rows or rows, seed))


@replaced(runs, "check_process", "a budget opened once more behind a fork", entry_checks.forks)
def opened_behind_a_fork(original, process):
    pass


@replaced(
    privacy_budget, "check_process", "a budget that is spent on behind a fork", entry_checks.forks
)
def spent_behind_a_fork(original, process):
    pass
