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
from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.attack import Stack, closeness_scores
from adaptive_qs.evaluation.tables import in_batches
from adaptive_qs.privacy import noise
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.write import write_table

from ..mutants.entries import DECLARED, LEARNT, new_ledger, rows, watch
from ..privacy import oracles
from ..privacy.recorded_noise import Noise, faults
from .helpers import digest_of

SIZES = (1, 2, 3, 7)
TABLE = rows(61)


@pytest.fixture
def tiny(monkeypatch):
    """Set the size of a block."""

    def change(constant, size):
        module, name = constant.rsplit(".", 1)
        assert isinstance(getattr(import_module(module), name), int)
        monkeypatch.setattr(constant, size)

    return change


@pytest.mark.parametrize("trials", SIZES)
def test_noise_has_its_law_however_its_words_are_cut(trials, tiny):
    tiny("adaptive_qs.privacy.noise._BLOCK_TRIALS", trials)
    variance = Fraction(49, 4)
    drawn = noise.discrete_gaussian(variance, 20_000, InsecureSeed(trials)).reshape(4, -1)
    figures = Noise(drawn, variance, drawn / oracles.gaussian_std(variance)).figures()
    figures["std_error"] /= 10**0.5  # the limits are those of ten times as many draws
    figures["returned_std_error"] /= 10**0.5
    assert faults(figures) == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("constant", ["GROUP_MEASUREMENTS", "GROUP_CELLS", "SETS_AHEAD"])
def test_answers_are_measured_alike_in_groups_of_any_size(constant, size, tiny, tmp_path):
    whole = watch("answer", TABLE, tmp_path / "whole", DECLARED, [1, 2])
    tiny(f"adaptive_qs.answering.measure.{constant}", size)
    cut = watch("answer", TABLE, tmp_path / "cut", DECLARED, [1, 2])
    assert cut.error is None
    assert cut.events == whole.events
    for one, other in zip(whole.calls, cut.calls):
        assert np.array_equal(one.inputs, other.inputs)


@pytest.mark.parametrize("texts", SIZES)
def test_answers_are_named_alike(texts, tiny):
    queries = {"version": 1, "parts": [{"ways": [1, 2], "queries": "marginal"}]}
    options = {"rho": 1.0, "insecure_seed": 1, "workers": 1}
    whole = adaptive_qs.answer(TABLE, DECLARED, queries, **options).to_arrow()
    tiny("adaptive_qs.answering.measure.KEPT_TEXTS", texts)
    assert adaptive_qs.answer(TABLE, DECLARED, queries, **options).to_arrow() == whole


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "constant",
    ["strategy.solution", "workload.matrices", "strategy.fixed_basis"],
)
def test_plans_are_the_same(constant, size, tiny, tmp_path):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).integers(0, 2, (13, 11)))
    parts = [
        {"ways": [1, 2], "queries": "range"},
        {"attributes": [["b"]], "queries": {"family": "custom", "matrix": "m.npy"}},
        {"attributes": [["b"], ["a", "b"]], "queries": "random"},
    ]
    ordered = json.loads(json.dumps(DECLARED))
    for column in ordered["columns"]:
        column["ordered"] = True
    workload = tmp_path / "w.json"
    workload.write_text(json.dumps({"version": 1, "parts": parts}))
    options = {"rho": 1.0, "workers": 1}
    whole = adaptive_qs.plan(ordered, workload, **options)
    name = "CHUNK_CELLS" if "basis" in constant else "BLOCK"
    tiny(f"adaptive_qs.{constant}.{name}", size)
    cut = adaptive_qs.plan(ordered, workload, **options)
    assert cut.rmse == pytest.approx(whole.rmse, rel=1e-9)
    assert cut.max_variance[0] == pytest.approx(whole.max_variance[0], rel=1e-9)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("size", SIZES)
def test_tables_are_written_alike(size, suffix, tiny, tmp_path):
    schema, table = Schema.parse(DECLARED), pa.Table.from_pandas(TABLE)
    paths = [tmp_path / f"{name}{suffix}" for name in ("whole", "cut")]
    write_table(table, paths[0], schema)
    tiny("adaptive_qs.table.write._ROWS", size)
    write_table(table, paths[1], schema)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("size", SIZES)
def test_every_row_takes_part_in_recognising_a_table(size, tiny):
    tiny("adaptive_qs.table.read.FRAME_ROWS", size)
    table = TABLE[:15]
    seen = {digest_of(table)}
    for row in range(len(table)):
        other = table.copy()
        other.loc[row, "b"] = 100 + row
        seen.add(digest_of(other))
    seen.add(digest_of(table[:-1]))
    assert len(seen) == len(table) + 2


@pytest.mark.parametrize("size", SIZES)
def test_rows_are_kept_alike_in_pieces_of_any_size(size, tiny, tmp_path):
    whole = watch("Synthesizer.fit", TABLE, tmp_path / "whole", LEARNT, insecure_seed=3)
    tiny("adaptive_qs.table.read.FRAME_ROWS", size)
    tiny("adaptive_qs.table.engines.local.SPOOL_BYTES", 300 * size)
    cut = watch("Synthesizer.fit", TABLE, tmp_path / "cut", LEARNT, insecure_seed=3)
    assert cut.error is None
    assert cut.events == whole.events
    for one, other in zip(whole.calls, cut.calls):
        assert np.array_equal(one.inputs, other.inputs)


@pytest.mark.parametrize("size", SIZES)
def test_kept_outputs_come_back_from_any_pieces(size, tiny, tmp_path):
    tiny("adaptive_qs.ledger.store.PIECE_BYTES", size)
    ledger = new_ledger(tmp_path / "ledger")
    stopped = watch("Synthesizer.fit", TABLE, tmp_path / "1", ledger=ledger, stop_after=3)
    resumed = watch("Synthesizer.fit", TABLE, tmp_path / "2", ledger=ledger, resume=True)
    assert resumed.error is None
    assert resumed.course[:3] == stopped.course


@pytest.mark.parametrize("size", SIZES)
def test_evaluations_are_the_same(size, tiny):
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({"a": 3, "b": 4})
    table = CodedTable.from_codes(domain, [rng.integers(0, n, 23) for n in domain.sizes])
    stack = Stack.from_parts([(table, rng.integers(0, 23, number)) for number in (23, 20, 9, 8)])
    whole = closeness_scores(stack), [*in_batches(_squares, range(11), 2, None)]
    tiny("adaptive_qs.evaluation.attack._BLOCK", size)
    tiny("adaptive_qs.evaluation.tables.BATCH", size)
    cut = closeness_scores(stack), [*in_batches(_squares, range(11), 2, None)]
    assert np.array_equal(whole[0], cut[0])
    assert whole[1] == cut[1]


def _squares(items):
    return [k**2 for k in items]
