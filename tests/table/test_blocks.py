"""Blocks change nothing: whatever is read, drawn or written in parts is as in one piece.

Blocks between a private table and what is published are also in tests/mutants/entry_checks.py
(``tiny_blocks``), where the table goes through `fit` and `answer`; here is every other size.
"""

from __future__ import annotations

import json
from fractions import Fraction
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest

import adaptive_qs
from adaptive_qs.evaluation.tables import in_batches
from adaptive_qs.privacy import noise
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import write_table

from ..mutants.entries import DECLARED, LEARNT, new_ledger, rows, watch
from ..privacy import oracles
from ..privacy.recorded_noise import Noise, faults
from .helpers import digest_of

SIZES = (1, 2, 3, 7)
TABLE = rows(61)


def watched(entry, folder, *arguments, **options):
    """The events of a run, and the private inputs of its measurements."""
    seen = watch(entry, TABLE, folder, *arguments, **options)
    assert seen.error is None
    return seen.events, [np.asarray(call.inputs).tolist() for call in seen.calls]


def answers(_):
    queries = {"version": 1, "parts": [{"ways": [1, 2], "queries": "marginal"}]}
    options = {"rho": 1.0, "insecure_seed": 1, "workers": 1}
    return adaptive_qs.answer(TABLE, DECLARED, queries, **options).to_arrow()


def planned(folder):
    folder.mkdir()
    np.save(folder / "m.npy", np.random.default_rng(0).integers(0, 2, (13, 11)))
    parts = [
        {"ways": [1, 2], "queries": "range"},
        {"attributes": [["b"]], "queries": {"family": "custom", "matrix": "m.npy"}},
        {"attributes": [["b"], ["a", "b"]], "queries": "random"},
    ]
    columns = [{**column, "ordered": True} for column in DECLARED["columns"]]
    (folder / "w.json").write_text(json.dumps({"version": 1, "parts": parts}))
    plan = adaptive_qs.plan({**DECLARED, "columns": columns}, folder / "w.json", rho=1.0, workers=1)
    return [plan.rmse, plan.max_variance[0]]


def written(folder):
    folder.mkdir()
    schema, table, found = Schema.parse(DECLARED), pa.Table.from_pandas(TABLE), []
    for name in ("t.csv", "t.csv.gz"):
        write_table(table, folder / name, schema)
        found.append((folder / name).read_bytes())
    return found


def recognised(_):
    """Every row takes part."""
    table = TABLE[:15]
    seen = {digest_of(table), digest_of(table[:-1])}
    for row in range(len(table)):
        other = table.copy()
        other.loc[row, "b"] = 100 + row
        seen.add(digest_of(other))
    assert len(seen) == len(table) + 2
    return seen


def resumed(folder):
    ledger = new_ledger(folder / "ledger")
    stopped = watch("Synthesizer.fit", TABLE, folder / "1", ledger=ledger, stop_after=3)
    again = watch("Synthesizer.fit", TABLE, folder / "2", ledger=ledger, resume=True)
    assert again.error is None
    assert again.course[:3] == stopped.course


def evaluated(_):
    return [*in_batches(_squares, range(11), 2, None)]


def _squares(items):
    return [k**2 for k in items]


CASES = {
    "answering.measure.GROUP_MEASUREMENTS": lambda f: watched("answer", f, DECLARED, [1, 2]),
    "answering.measure.GROUP_CELLS": lambda f: watched("answer", f, DECLARED, [1, 2]),
    "answering.measure.SETS_AHEAD": lambda f: watched("answer", f, DECLARED, [1, 2]),
    "answering.measure.KEPT_TEXTS": answers,
    "strategy.solution.BLOCK": planned,
    "workload.matrices.BLOCK": planned,
    "strategy.bounds.CHUNK_CELLS": planned,
    "table.write._ROWS": written,
    "table.read.FRAME_ROWS": recognised,
    "table.engines.local.SPOOL_BYTES": lambda f: watched(
        "Synthesizer.fit", f, LEARNT, insecure_seed=3
    ),
    "ledger.store.PIECE_BYTES": resumed,
    "evaluation.tables.BATCH": evaluated,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("constant", CASES)
@pytest.mark.one_in(5)
def test_what_is_done_in_blocks_is_as_in_one_piece(constant, size, monkeypatch, tmp_path):
    whole = CASES[constant](tmp_path / "whole")
    if CASES[constant] is planned:
        whole = pytest.approx(whole, rel=1e-9)
    module, name = f"adaptive_qs.{constant}".rsplit(".", 1)
    assert isinstance(getattr(import_module(module), name), int)
    monkeypatch.setattr(f"{module}.{name}", size * (300 if name == "SPOOL_BYTES" else 1))
    if name == "SPOOL_BYTES":
        monkeypatch.setattr("adaptive_qs.table.read.FRAME_ROWS", size)
    assert CASES[constant](tmp_path / "cut") == whole


@pytest.mark.parametrize("trials", SIZES)
def test_noise_has_its_law_however_its_words_are_cut(trials, monkeypatch):
    monkeypatch.setattr(noise, "_BLOCK_TRIALS", trials)
    variance = Fraction(49, 4)
    drawn = noise.discrete_gaussian(variance, 20_000, InsecureSeed(trials)).reshape(4, -1)
    figures = Noise(drawn, variance, drawn / oracles.gaussian_std(variance)).figures()
    figures["std_error"] /= 10**0.5  # the limits are those of ten times as many draws
    figures["returned_std_error"] /= 10**0.5
    assert faults(figures) == []
