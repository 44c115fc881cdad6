"""Bugs in how the parts are put together: what is handed to whom. No formula is touched."""

import hashlib
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa

from adaptive_qs import synthesizer
from adaptive_qs.answering import answers
from adaptive_qs.answering.answers import Answers
from adaptive_qs.answering.measure import grid_bits
from adaptive_qs.answering.plan import Batch
from adaptive_qs.learn import ranges
from adaptive_qs.learn import schema as learning
from adaptive_qs.ledger.run import LedgerRun
from adaptive_qs.loop.forecast import plan_memory
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.release import facts, release
from adaptive_qs.run import job as runs
from adaptive_qs.run import tables
from adaptive_qs.run.budget import Session
from adaptive_qs.run.job import Job
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table import encode
from adaptive_qs.table import read as readers
from adaptive_qs.table.columns.category import CategoricalColumn

from . import entry_checks
from .mutant import mutant


@contextmanager
def patched(*patches):
    """All of these at once."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def wrapped(owner, name, make):
    """A patch of a function by what ``make`` makes of the original."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


# Blocks


def _cut(overlap):
    def counted(count, values):
        total = count(values[: ranges._BLOCK])
        for start in range(ranges._BLOCK, values.size, ranges._BLOCK):
            total += count(values[max(0, start - overlap) : start + ranges._BLOCK])
        return total

    return mock.patch.object(ranges, "_counted", counted)


@mutant("blocks of values to learn from that overlap by a row", entry_checks.tiny_blocks)
def overlapping():
    with _cut(1):
        yield


@mutant("blocks of values to learn from that lose a row", entry_checks.tiny_blocks)
def gapped():
    with _cut(-1):
        yield


@mutant("the first row of every later block of a file lost", entry_checks.tiny_blocks)
def lost_rows():
    def opener(original):
        @contextmanager
        def open_file(path):
            with original(path) as source:

                def read(wanted):
                    for number, chunk in enumerate(source.read(wanted)):
                        columns = tuple(c[1:] if number else c for c in chunk.columns)
                        yield replace(chunk, columns=columns)

                yield replace(source, read=read)

        return open_file

    with wrapped(readers, "open_file", opener):
        yield


# Ceilings


def _measured_with(change):
    """Tables measured with a plan that was changed by the table."""

    def make(original):
        def measure(table, schema, workload, target, work, *others):
            changed = replace(work, limits=change(table, workload, work.limits))
            return original(table, schema, workload, target, changed, *others)

        return measure

    return wrapped(tables, "measure", make)


@mutant("as many cells measured as there are rows", entry_checks.ceilings)
def cells_of_rows():
    with _measured_with(lambda table, _, plan: replace(plan, measured_cells=table.num_rows)):
        yield


@mutant("memory planned for the rows that there are", entry_checks.ceilings)
def memory_of_rows():
    def planned(table, workload, plan):
        memory = plan.max_memory_bytes
        found = plan_memory(table.domain, workload, table.num_rows, memory, plan.workers)
        return replace(plan, measured_cells=found.measured_cells)

    with _measured_with(planned):
        yield


@mutant("the largest table that fits is the one that came", entry_checks.ceilings)
def most_rows_of_table():
    with _measured_with(lambda table, _, plan: replace(plan, most_rows=table.num_rows)):
        yield


@mutant("the grid of answers by the rows that there are", entry_checks.ceilings)
def grid_of_rows():
    planned = []

    def planner(original):
        def plan(self):
            planned[:] = [original(self)]
            return planned[0]

        return plan

    def measurer(original):
        def answer_sets(mechanism, counter, mechanisms, units):
            # As of far longer tables: the grid of short ones does not depend on their rows.
            rows = int(counter.count(())) << 40
            finer = planned[0].mechanism.on_grid(grid_bits(mechanism, units, rows))
            return original(finer, counter, mechanisms, units)

        return answer_sets

    with patched(wrapped(Batch, "plan", planner), wrapped(answers, "answer_sets", measurer)):
        yield


# Entropy


def _begun_with(entropy):
    """Mechanisms of both jobs with another source of entropy, made from their job and ledger."""
    original = Job._begin

    def begin(self):
        with mock.patch.object(runs, "Mechanisms", Mechanisms):
            made = original(self)
        return runs.Mechanisms(made.ledger, entropy(self, made.ledger) or made.entropy)

    return mock.patch.object(Job, "_begin", begin)


class Disguised(InsecureSeed):
    """A seed that says it is none."""

    insecure = False


def _published(ledger):
    place = ledger.place
    return Disguised(int(place.ledger, 16) + place.run)


@mutant("noise on a ledger seeded from what is published", entry_checks.entropy_handed)
def published_seed():
    with _begun_with(lambda _, ledger: ledger.place and _published(ledger)):
        yield


@mutant("noise of a resumed run from a seed", entry_checks.entropy_handed)
def resumed_seed():
    with _begun_with(lambda job, ledger: _published(ledger) if job.session._resume else None):
        yield


@mutant("noise of learnt columns from the schema", entry_checks.entropy_handed)
def schema_seed():
    def seed(job, _):
        learns = bool(job.schema.private_columns)
        return InsecureSeed(int(job.schema.fingerprint[:8], 16)) if learns else None

    with _begun_with(seed):
        yield


@mutant("the seed of the sampled table as that of the noise", entry_checks.entropy_handed)
def sampling_seed():
    seeds = []

    def chosen(original):
        def chosen_seed(seed):
            seeds[:] = [original(seed)]
            return seeds[0]

        return chosen_seed

    def entropy(original):
        return lambda options: InsecureSeed(seeds[0]) if seeds else original(options)

    with patched(wrapped(release, "chosen_seed", chosen), wrapped(runs, "entropy_of", entropy)):
        yield


@mutant("noise broadcast along an axis of four attributes and more", entry_checks.independent_noise)
def broadcast():
    original = Mechanisms._draw_counts

    def draw(self, event, values):
        if values.ndim < 4:
            return original(self, event, values)
        first = values[..., :1]
        return values + (original(self, event, first) - first)

    with mock.patch.object(Mechanisms, "_draw_counts", draw):
        yield


# Budgets and ledgers


@mutant("learning on a budget of its own", entry_checks.charged_once)
def learning_aside():
    def make(original):
        def learn(schema, gathered, mechanisms, cost):
            if not schema.private_columns:
                return schema
            aside = type(mechanisms)(Budget(cost.rho, cost.delta), mechanisms.entropy)
            return original(schema, gathered, aside, cost)

        return learn

    with wrapped(learning, "learn_schema", make):
        yield


@mutant("a new budget after learning", entry_checks.charged_once)
def budget_again():
    def begun(mechanisms):
        limit = mechanisms.ledger.limit
        return lambda: runs.Mechanisms(Budget(limit.rho, limit.delta), mechanisms.entropy)

    with mock.patch.object(runs, "_begun", begun):
        yield


@mutant("a run on a ledger counted in memory", entry_checks.charged_once)
def counted_in_memory():
    original = Session.begin

    def begin(self, request, insecure=False):
        original(self, request, insecure)
        return Budget(self._cost.rho, self._cost.delta)

    with mock.patch.object(Session, "begin", begin):
        yield


@mutant("a budget given back after a crash", entry_checks.charged_once)
def given_back():
    def leave(self):
        if self._lock.held:
            with self._store.writing():
                self._store.close_run(self.number, finished=False)
        self._lock.release()
        self._store.close()

    with mock.patch.object(LedgerRun, "leave", leave):
        yield


@mutant("learnt bins told as declared", entry_checks.charged_once)
def told_as_declared():
    def make(original):
        return lambda event: "selections" if (kind := original(event)) == "values" else kind

    with wrapped(facts, "_kind", make):
        yield


# Recognising what is resumed


def _asked_without(name):
    def make(original):
        return lambda job: {k: v for k, v in original(job).items() if k != name}

    return wrapped(Job, "_request", make)


@mutant("a run resumed with a noise seed", entry_checks.resumed_as_begun)
def forgotten_seed():
    with _asked_without("noise seed"):
        yield


@mutant("a run resumed with another share for learning", entry_checks.resumed_as_begun)
def forgotten_share():
    with _asked_without("learning share"):
        yield


@mutant("a run resumed with another schema", entry_checks.resumed_as_begun)
def forgotten_schema():
    with _asked_without("schema"):
        yield


@mutant("a table recognised by its first block", entry_checks.resumed_as_begun)
def recognised_by_beginning():
    def make(original):
        def table_bytes(source):
            yield next(iter(original(source)))

        return table_bytes

    with wrapped(runs, "table_bytes", make):
        yield


@mutant("a table recognised by a hash without a key", entry_checks.resumed_as_begun)
def plain_hash():
    def plain(path, chunks, make=True):
        return hashlib.sha256(b"".join(chunks)).hexdigest()

    with mock.patch("adaptive_qs.ledger.files.keyed_hash", plain):
        yield


# What callers get


@mutant("answers that can be read again", entry_checks.read_once)
def read_again():
    original = Answers.batches

    def batches_of(self, *given):
        counter = self._counter or self._kept
        self._kept = self._counter = counter
        return original(self, *given)

    with mock.patch.object(Answers, "batches", batches_of):
        yield


@mutant("a release kept for the next table", entry_checks.refitted)
def kept_release():
    original, kept = synthesizer.synthesize, {}

    def synthesize(job, source, clock):
        if job.schema.fingerprint not in kept:
            kept[job.schema.fingerprint] = original(job, source, clock)
        return kept[job.schema.fingerprint]

    with mock.patch.object(synthesizer, "synthesize", synthesize):
        yield


# Frames


def _frames(change):
    """Frames changed before they are read."""

    def make(original):
        return lambda table: original(change(table))

    return wrapped(readers, "frame_source", make)


@mutant("cells as text wherever one of their column has another type", entry_checks.every_form)
def one_type():
    def as_text(table):
        if not isinstance(table, pd.DataFrame):
            return table
        mixed = [
            name
            for name in table
            if table[name].dtype == object and table[name].dropna().map(type).nunique() > 1
        ]
        return table.assign(**{name: table[name].map(str) for name in mixed})

    with _frames(as_text):
        yield


@mutant("codes of a category from the frame", entry_checks.frames_in_and_out)
def frame_codes():
    original = encode._codes

    def codes(column, values, label):
        if isinstance(column, CategoricalColumn) and pa.types.is_dictionary(values.type):
            return np.minimum(values.indices.to_numpy(), column.size - 1)
        return original(column, values, label)

    with mock.patch.object(encode, "_codes", codes):
        yield


@mutant("sampled frames in the categories of the private one", entry_checks.frames_in_and_out)
def frame_categories():
    fit, sample, kept = Synthesizer.fit, Synthesizer.sample, {}

    def fitted(self, table, y=None, *, schema=None):
        kept.update(table.dtypes)
        return fit(self, table, schema=schema)

    def sampled(self, num_rows=None, seed=None):
        return sample(self, num_rows, seed).astype({"a": kept["a"]})

    with (
        mock.patch.object(Synthesizer, "fit", fitted),
        mock.patch.object(Synthesizer, "sample", sampled),
    ):
        yield


@mutant("as many rows sampled as the private frame has", entry_checks.frames_in_and_out)
def frame_rows():
    fit, sample, kept = Synthesizer.fit, Synthesizer.sample, []

    def fitted(self, table, y=None, *, schema=None):
        kept[:] = [len(table)]
        return fit(self, table, schema=schema)

    def sampled(self, num_rows=None, seed=None):
        return sample(self, num_rows or kept[0], seed)

    with (
        mock.patch.object(Synthesizer, "fit", fitted),
        mock.patch.object(Synthesizer, "sample", sampled),
    ):
        yield
