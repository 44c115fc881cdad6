"""Every way in which two runs may differ becomes a finding, and nothing else does."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count, islice

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_qs.answering.api import answer
from adaptive_qs.audit.audit import Synthesis, audit
from adaptive_qs.audit.replay import (
    AuditReport,
    Check,
    Recorder,
    Replayer,
    Run,
    compare,
    record,
    squared_distance,
)
from adaptive_qs.audit.tables import (
    FORMS,
    KINDS,
    Types,
    neighbour_pairs,
    set_pairs,
    stand_in,
    write_rows,
)
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.files import mark_path
from adaptive_qs.privacy import scores as scoring
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.events import (
    Cost,
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
    threshold_delta,
)
from adaptive_qs.privacy.mechanisms import PrimitiveCall
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import ENGINES
from adaptive_qs.table.joined import join_tables
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet

from ..doors import release_counts, select
from ..family import DEEP
from .pairs import replay_pairs
from .schemas import schemas


def counting(name, squared_sensitivity):
    return GaussianEvent(Purpose.STRATEGY, (name,), squared_sensitivity, 100)


def job(counts, scores=(5, 9), sensitivity=4, column="counts", extra=0, output=None):
    """Releases counts, chooses, and publishes what came out."""

    def run(mechanisms):
        noisy = release_counts(mechanisms, counting(column, 2), np.array(counts))
        chosen = select(
            mechanisms, SelectionEvent(Purpose.SELECTION, (), 0.5), np.array(scores), sensitivity
        )
        for _ in range(extra):
            release_counts(mechanisms, counting("one more", 1), np.array([1]))
        published = noisy.tobytes() + bytes([chosen])
        return {"table": published if output is None else output}

    return run


def audited(here, there):
    recorded = record(here, Budget(1), InsecureSeed(0))
    replayed = record(there, Budget(1), InsecureSeed(9), recorded)
    tally = AuditReport()
    compare(recorded, replayed, "a run", tally)
    return recorded, replayed, tally


def checks(tally):
    return {finding.check for finding in tally.findings}


def test_runs_that_differ_as_much_as_they_may_are_clean():
    recorded, replayed, tally = audited(job([3, 4]), job([2, 5], scores=(1, 13)))
    assert tally.findings == []
    assert recorded.artefacts == replayed.artefacts
    assert set(tally.made) == set(Check) - {Check.SEEN}


def fail(_):
    raise ZeroDivisionError


WRONG = {
    "counts": (job([1, 4]), {Check.COUNTS}),
    "one score": (job([3, 4], scores=(5, 14)), {Check.SCORES}),
    "sensitivity": (job([3, 4], sensitivity=5), {Check.COURSE}),
    "column": (job([3, 4], column="others"), {Check.COURSE}),
    "shape": (job([3, 4, 0]), {Check.COURSE}),
    "candidates": (job([3, 4], scores=(5, 9, 9)), {Check.COURSE}),
    "one more draw": (job([3, 4], extra=1), {Check.COURSE}),
    "output": (job([3, 4], output=b""), {Check.OUTPUTS}),
    "an error": (fail, {Check.COURSE}),
}


@pytest.mark.parametrize("case", WRONG)
def test_whatever_differs_is_found(case):
    there, expected = WRONG[case]
    _, _, tally = audited(job([3, 4]), there)
    assert expected <= checks(tally)


def test_a_draw_less_is_found():
    _, _, tally = audited(job([3, 4], extra=1), job([3, 4]))
    assert checks(tally) == {Check.COURSE}


def test_a_draw_that_is_not_charged_is_found():
    run, _, _ = audited(job([3, 4]), job([3, 4]))
    for charged in (run.charged[:-1], run.charged[::-1], (*run.charged, run.charged[0])):
        tally = AuditReport()
        compare(replace(run, charged=charged), run, "a run", tally)
        assert checks(tally) == {Check.CHARGED}


def test_distances_are_exact_beyond_64_bits():
    far = np.array([2**62, -(2**62), 0])
    assert squared_distance(far, -far // 2) == 2 * (2**62 + 2**61) ** 2
    assert squared_distance(np.array([3, 4]), np.array([0, 0])) == 25


def discovery(values, counts):
    event = PartitionEvent(Purpose.VALUES, ("city",), 9, 20, threshold_delta(9, 20))
    return PrimitiveCall(event, np.array(counts), None, ("Ulm",), values)


@pytest.mark.parametrize(
    ("values", "counts", "clean"),
    [
        (("Bonn", "Ulm"), [4, 30], True),
        (("Ulm",), [30], False),
        (("Aalen", "Bonn", "Ulm"), [1, 5, 30], True),
        (("Aalen", "Bonn", "Ulm"), [1, 4, 30], False),
        (("Bonn", "Ulm"), [5, 31], True),
        (("Bonn", "Ulm"), [4, 31], False),
    ],
)
def test_discovered_values_may_move_by_one_row(values, counts, clean):
    one, other = discovery(("Bonn", "Ulm"), [5, 30]), discovery(values, counts)
    tally = AuditReport()
    compare(*(Run((call,), (call.event,), {}) for call in (one, other)), "a run", tally)
    assert (not tally.findings) is clean


def test_a_recorder_keeps_inputs_and_outputs():
    mechanisms = Recorder(Budget(1), InsecureSeed(0))
    noisy = release_counts(mechanisms, counting("counts", 1), np.array([3, 4]))
    (call,) = mechanisms.calls
    assert call.inputs.tolist() == [3, 4]
    assert call.output.tolist() == noisy.tolist()
    assert call.event == GaussianEvent(Purpose.STRATEGY, ("counts",), 1, 100)


# Neighbouring tables of any schema write the same bytes when the noise is the same.


@pytest.mark.slow
def test_neighbours_cannot_be_told_apart():
    done = replay_pairs(pairs=60, num_schemas=10)
    assert done.findings == []
    assert done.pairs == 60
    assert done.runs == 4 * done.pairs
    assert done.draws > 5 * done.runs


PRIVATE = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "age", "type": "integer", "private_bins": 6, "missing": ["?"]},
            {"name": "pay", "type": "numeric", "private_bins": 5, "min": 0, "decimals": 2},
            {"name": "city", "type": "categorical", "private_values": 3, "catch_all": "*"},
            {"name": "flag", "type": "boolean"},
        ],
    }
)


@pytest.mark.slow
def test_bins_and_values_are_learnt_alike():
    report = audit(PRIVATE, [1, 2], pairs=14, rhos=(0.5,), sample_every=7)
    assert report.clean
    assert report.draws > 14 * 2 * 6  # bounds, bins and values come first in both commands


@pytest.mark.parametrize("schema", [PRIVATE, "decimals", "narrow", "one end"])
def test_rows_can_be_generated_for_whatever_is_to_be_learnt(schema):
    columns = {
        "decimals": {"type": "numeric", "private_bins": 9, "min": 0, "max": 0.3, "decimals": 1},
        "narrow": {"type": "integer", "private_bins": 2, "min": 7, "max": 8},
        "one end": {"type": "integer", "private_bins": 9, "max": -(10**17)},
    }
    if isinstance(schema, str):
        schema = Schema.parse({"version": 1, "columns": [{"name": "a", **columns[schema]}]})
    ready = stand_in(schema)
    assert ready.names == schema.names
    assert not ready.private_columns
    assert all(size >= 2 for size in ready.domain().sizes)


EVERYTHING = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a", "type": "categorical", "values": ["x", "y"], "catch_all": "other"},
            {"name": "b", "type": "integer", "min": 0, "max": 9, "outside": "clip"},
            {"name": "c", "type": "date", "min": "2020-01-01", "max": "2022-01-01",
             "outside": "missing", "missing": ["?"]},
        ],
    }
)  # fmt: skip


@settings(max_examples=15)
@given(schemas(), st.integers(0, 2**32 - 1))
def test_pairs_are_neighbours(tmp_path_factory, schema, seed):
    folder = tmp_path_factory.mktemp("pairs")
    for pair in islice(neighbour_pairs(schema, folder, np.random.default_rng(seed)), 12):
        short, long = sorted([pair.here, pair.there], key=len)
        assert len(long) == len(short) + 1
        rest = list(long)
        for row in short:
            rest.remove(row)
        assert len(rest) == 1
        for rows in (short, long):
            if rows:
                path = write_rows(rows, schema.names, folder)
                assert read_table(path, schema).num_rows == len(rows)


def test_every_kind_of_table_and_row_occurs(tmp_path):
    pairs = islice(neighbour_pairs(EVERYTHING, tmp_path, np.random.default_rng(0)), 7 * len(KINDS))
    names = {pair.name for pair in pairs}
    assert len(names) == 7 * len(KINDS)
    assert {name.partition(", ")[0] for name in names} == set(KINDS)
    assert any("the only row less" in name for name in names)
    assert any("outside the schema" in name for name in names)


MIXED = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a", "type": "categorical", "values": ["true", "false"], "catch_all": "*"},
            {"name": "b", "type": "categorical", "values": ["1", "2", "3"], "catch_all": "*"},
            {"name": "c", "type": "date", "min": "2020-01-01", "max": "2020-12-31",
             "granularity": "month"},
        ],
    }
)  # fmt: skip


@pytest.mark.slow
def test_a_row_of_another_type_recodes_no_other_row():
    """In a frame of Python objects, where one type for a whole column would do so."""
    report = audit(MIXED, 1, pairs=35, rhos=(0.1,), sample_every=10**6)
    assert report.findings == []
    assert report.pairs == 35


@pytest.mark.slow
@settings(max_examples=10)
@given(schemas(), st.integers(0, 2**32 - 1))
def test_every_form_of_a_table_holds_the_same_rows(tmp_path_factory, schema, seed):
    folder = tmp_path_factory.mktemp("forms")
    for pair in islice(neighbour_pairs(schema, folder, np.random.default_rng(seed)), 6):
        if pair.here and pair.there:
            types = Types(schema, pair.here, pair.there)
            whole = read_table(write_rows(pair.here, schema.names, folder, "whole.csv"), schema)
            for form, make in FORMS.items():
                table = read_table(make(pair.here, types, folder), schema)
                for one, other in zip(whole.columns, table.columns):
                    assert np.array_equal(one, other), form


@pytest.mark.parametrize(
    "engine", [pytest.param(e, marks=[pytest.mark.slow] * (e != "auto")) for e in ENGINES]
)
def test_neighbours_cannot_be_told_apart_by_any_engine(engine, scheduler):
    how = {"engine": engine, "scheduler": scheduler}
    report = audit(PRIVATE, 2, pairs=4, rhos=(0.5,), sample_every=10**6, **how)
    assert report.clean, report.findings
    assert report.moved
    with pytest.raises(InputError, match="engine is 'none'"):
        audit(PRIVATE, 2, engine="none")


def test_neighbours_cannot_be_told_apart_where_marginals_are_scored_from_occupied_cells(
    monkeypatch,
):
    monkeypatch.setattr(scoring, "MOST_FORMED", 2)
    report = audit(PRIVATE, 2, pairs=4, rhos=(0.5,), sample_every=10**6)
    assert report.clean, report.findings
    assert report.moved


def test_the_ceiling_is_the_least_memory_that_can_be_planned_for():
    tight = Synthesis.of(EVERYTHING, 2, 1.0).at_ceiling()
    least, marginals = tight.limits.max_memory_bytes, tight.checked.root.work.workload
    assert Synthesis.of(EVERYTHING, 2, 1.0, max_memory=least).limits == tight.limits
    with pytest.raises(ResourceExceeded):
        Synthesis.of(EVERYTHING, 2, 1.0, max_memory=least - 1)
    largest = max(map(marginals.domain.size, marginals.cliques))
    assert tight.limits.measured_cells == largest


@pytest.mark.parametrize("kind", KINDS)
def test_tables_stay_inside_the_domain(kind):
    rng = np.random.default_rng(0)
    for sizes in [(1,), (2, 1, 7), (300, 2)]:
        codes = KINDS[kind](sizes, rng)
        assert codes.shape[1] == len(sizes)
        assert (codes >= 0).all()
        assert (codes < np.array(sizes)).all()


# The whole job on neighbouring tables: with the noisy outputs frozen, every byte is the same.
#
# What is written may depend on the private rows only through the outputs of the mechanisms. So a
# second run on a neighbour, whose mechanisms hand out what the first run's did, must ask for the
# same events in the same order and write the same bundle and the same table.

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["x", "y", "z"], "missing": ["?"]},
        {"name": "b", "type": "integer", "min": 0, "max": 19},
        {"name": "c", "type": "boolean"},
    ],
}
ROWS = [("xyz"[i % 3], i % 7, i % 2 == 0) for i in range(400)]
NEIGHBOURS = {
    "a typical row more": [*ROWS, ROWS[0]],
    "the rarest combination more": [*ROWS, ("z", 19, True)],
    "a missing value more": [*ROWS, (None, 0, False)],
    "a row less": ROWS[1:],
}


def recording():
    """Makers of mechanisms that record and that replay, and all that they made."""
    made = []

    def recorder(ledger, entropy):
        made.append(Recorder(ledger, entropy))
        return made[-1]

    def replayer(ledger, entropy):
        made.append(Replayer(ledger, entropy, made[0].calls))
        return made[-1]

    return recorder, replayer, made


@pytest.fixture(params=["in memory", "on a ledger"])
def ledger(request, tmp_path_factory):
    """Makes copies of one fresh ledger, or of none."""
    original = tmp_path_factory.mktemp("ledger") / "fresh"
    LedgerBook.create(original, Cost.within(1), {"rho": 1.0, "delta": 1e-9}).close()
    copies = (original.with_name(f"copy {number}") for number in count())

    def copy():
        if request.param == "in memory":
            return None
        ledger = next(copies)
        shutil.copy(mark_path(original), mark_path(ledger))
        return shutil.copy(original, ledger)

    return copy


def entries(ledger):
    """What the entries of a ledger say, but for when; nothing without one."""
    return [] if ledger is None else [row.body for row in LedgerBook(ledger).rows()]


def fitted(frame, folder, options):
    """A bundle and a table that is sampled from it."""
    model = Synthesizer(**options, workers=1).fit(frame, schema=SCHEMA)
    model.save(folder / "r.zip", force=True)
    (folder / "sample.csv").write_text(model.sample(seed=1).to_csv())


def answered(frame, folder, options):
    """Every file that answers are written to."""
    answer(frame, SCHEMA, [1, 2], **options, workers=1).write(folder / "a.csv", force=True)


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
@pytest.mark.parametrize("publish", [fitted, answered])
def test_neighbours_write_the_same_bytes(publish, neighbour, ledger, tmp_path, monkeypatch):
    few_rows = partial(SynthesisSettings, fit_rows=500)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", few_rows)

    def published(rows, mechanisms):
        monkeypatch.setattr("adaptive_qs.run.states.Mechanisms", mechanisms)
        options = {"rho": 0.2, "max_memory": "1GB", "ledger": ledger()}
        publish(pd.DataFrame(rows, columns=["a", "b", "c"]), tmp_path, options)
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        return files, entries(options["ledger"])

    recorder, replayer, made = recording()
    first = published(ROWS, recorder)
    assert len(first[0]) == 2
    assert published(NEIGHBOURS[neighbour], replayer) == first
    recorded, replayed = made
    assert len(replayed.calls) == len(recorded.calls) > 5  # total, one-way, one round


# Sets of tables: neighbours differ by a root row with everything below it.

TOWN = TableSet.parse(DEEP)


def families(pairs, side):
    """The rows of one side of a pair, by the key of their root row and by table."""
    found, roots = {}, {}
    for name in TOWN.names:
        key, width = TOWN.by_child.get(name), len(TOWN.tables[name].columns)
        for row in getattr(pairs[name], side):
            *own, owner = row[width:] if key else [row[width], None]
            root = own[0] if key is None else roots[key.parent, owner]
            roots |= {(name, each): root for each in own}
            found.setdefault(root, {}).setdefault(name, []).append(tuple(row))
    return {root: {n: sorted(rows) for n, rows in f.items()} for root, f in found.items()}


@pytest.mark.parametrize("replace", [False, True])
def test_sets_differ_by_a_root_row_with_everything_below_it(tmp_path, replace):
    rng, exceeding = np.random.default_rng(1), Counter()
    for _, pairs in islice(set_pairs(TOWN, replace, tmp_path, rng), 25):
        here, there = (families(pairs, side) for side in ("here", "there"))
        differing = {root for root in {**here, **there} if here.get(root) != there.get(root)}
        assert len(differing) == 1 or (replace and not differing)
        assert all((root in here) + (root in there) == 1 + replace for root in differing)
        for key in TOWN.keys:
            for root in differing & set(here):
                owners = Counter(row[-1] for row in here[root].get(key.child, ()))
                exceeding[key.child] += max(owners.values(), default=0) > key.most
    assert all(exceeding[key.child] for key in TOWN.keys)


def test_sets_whose_root_has_keys_alone_are_audited():
    age = {"name": "age", "type": "integer", "min": 0, "max": 9}
    columns = {"homes": [], "persons": [age]}
    tables = {name: {"version": 1, "columns": own} for name, own in columns.items()}
    keys = [{"child": "persons", "column": "home", "parent": "homes", "most": 2}]
    bare = TableSet.parse({"version": 1, "tables": tables, "keys": keys})
    for neighbours in ("add-remove", "replace"):
        report = audit(bare, 1, pairs=2, rhos=(0.5,), sample_every=20, neighbours=neighbours)
        assert (report.findings, report.moved > 0) == ([], True)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.slow
def test_neighbouring_sets_change_each_table_by_at_most_the_claimed_rows(tmp_path, replace):
    rng, largest = np.random.default_rng(2), Counter()
    for _, pairs in islice(set_pairs(TOWN, replace, tmp_path, rng), 40):
        here, there = (measured_rows(pairs, side) for side in ("here", "there"))
        for name in TOWN.names:
            one, other = here[name], there[name]
            largest[name] = max(largest[name], ((one - other) + (other - one)).total())
    most = {each.name: each.rows_per_unit * (1 + replace) for each in TOWN.measured()}
    assert (
        largest
        == most
        == {"homes": 1 + replace, "persons": 2 + 2 * replace, "trips": 4 + 4 * replace}
    )


def measured_rows(pairs, side):
    """How often each combination of codes occurs in each table as it is measured."""
    tables = {
        name: pd.DataFrame(
            getattr(pair, side), columns=[*TOWN.tables[name].names, *TOWN.key_columns(name)]
        )
        for name, pair in pairs.items()
    }
    joined = join_tables(tables, TOWN, 2**30)
    coded = {each.name: read_table(joined[each.name], each.schema) for each in TOWN.measured()}
    return {name: Counter(zip(*(c.tolist() for c in t.columns))) for name, t in coded.items()}
