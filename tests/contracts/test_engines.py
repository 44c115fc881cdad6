"""What every counting engine has to do: exact counts of any table, and the same release."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs import Synthesizer, answer
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.machine import Fault
from adaptive_qs.privacy.events import Cost
from adaptive_qs.table import coded
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.engines import ENGINES, EngineOptions, open_engine
from adaptive_qs.table.schema import Schema

from ..small import SCHEMA as DECLARED

SIZES = {"a": 3, "one": 1, "b": 256, "c": 257, "d": 70_000, "e": 2}
ROWS = 2_345
SCHEMA = Schema.parse(SIZES)


def codes_of(rows):
    rng = np.random.default_rng(rows)
    drawn = [np.minimum(rng.geometric(2 / max(n, 2), rows) - 1, n - 1) for n in SIZES.values()]
    for column, size in zip(drawn, SIZES.values()):
        column[-1] = size - 1  # the last code of every width
    return drawn


def slow_count(codes, clique):
    counts = np.zeros(tuple(list(SIZES.values())[i] for i in clique), dtype=np.int64)
    for row in zip(*(codes[i].tolist() for i in clique)):
        counts[row] += 1
    return counts


def written(codes, folder):
    """The rows as one table in several files of both kinds."""
    folder.mkdir()
    frame = pd.DataFrame(dict(zip(SIZES, codes)))
    cuts = [0, len(frame) // 3, len(frame) // 2, len(frame)]
    parts = [frame.iloc[a:b] for a, b in pairwise(cuts)]
    parts[0].to_csv(folder / "0.csv", index=False)
    parts[1][list(SIZES)[::-1]].to_csv(folder / "1.csv.gz", index=False)
    pq.write_table(pa.Table.from_pandas(parts[2], preserve_index=False), folder / "2.parquet")
    (folder / ".hidden.csv").write_text("no table")
    (folder / "notes.txt").write_text("no table")
    return folder


FORMS = {
    "codes": lambda codes, _: CodedTable.from_codes(Domain.from_sizes(SIZES), codes),
    "frame": lambda codes, _: pd.DataFrame(dict(zip(SIZES, codes))),
    "folder": lambda codes, folder: written(codes, folder / "data"),
    "pattern": lambda codes, folder: str(written(codes, folder / "data") / "*"),
}
FILES = ("folder", "pattern")
"""The kinds of tables that every engine takes."""


def opened(engine, form, codes, folder, **options):
    try:
        source = FORMS[form](codes, folder)
        return open_engine(engine, source, SCHEMA, EngineOptions(workers=2, **options))
    except InputError:
        if form in FILES:
            raise
        pytest.skip("this engine does not take such a table")


CLIQUES = [(i,) for i in range(6)] + [
    clique for k in (2, 3) for clique in combinations(range(6), k) if 4 not in clique
] + [(0, 4), (1, 2, 3, 5)]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 64, 65, ROWS])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.one_in(5)
def test_counts_are_those_of_a_row_by_row_count(
    engine, form, rows, scheduler, tmp_path, monkeypatch
):
    monkeypatch.setattr(coded, "BLOCK_ROWS", 64)
    monkeypatch.setattr(coded, "LISTED_CELLS", 2**17)
    codes = codes_of(rows)
    with opened(engine, form, codes, tmp_path, scheduler=scheduler) as counting:
        assert counting.domain == Domain.from_sizes(SIZES)
        assert counting.count_rows() == rows
        for clique, counts in zip(CLIQUES, counting.count_all(CLIQUES), strict=True):
            assert counts.dtype == np.int64
            np.testing.assert_array_equal(counts, slow_count(codes, clique))
        for clique, (cells, counts) in zip(CLIQUES, counting.occupied(CLIQUES), strict=True):
            assert cells.dtype == counts.dtype == np.int64
            expected = slow_count(codes, clique).reshape(-1)
            assert sorted(cells) == np.flatnonzero(expected).tolist()
            np.testing.assert_array_equal(counts, expected[cells])
        assert counting.occupied([]) == []
        (again,) = counting.count_all([(0, 3)])
        np.testing.assert_array_equal(again, slow_count(codes, (0, 3)))
        assert counting.count_all([]) == []


FRAME = pd.DataFrame(
    {"a": np.arange(900) % 4, "b": np.array(["x", "y", "y"] * 300), "c": np.arange(900) % 5 < 2}
)
LEARNING = {
    **DECLARED,
    "columns": [{**DECLARED["columns"][0], "private_bins": 3}, *DECLARED["columns"][1:]],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    FRAME[:500].to_csv(folder / "0.csv", index=False)
    FRAME[500:].to_parquet(folder / "1.parquet")
    return folder


def released(engine, files, schema, folder, scheduler=None):
    options = {"rho": 1, "insecure_seed": 3, "engine": engine, "scheduler": scheduler}
    model = Synthesizer(workers=2, **options).fit(files, schema=schema)
    model.save(folder / "r.zip", force=True)
    answers = answer(files, schema, 2, **options).to_arrow()
    return (folder / "r.zip").read_bytes(), answers


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("schema", [DECLARED, LEARNING], ids=["declared", "learnt"])
@pytest.mark.parametrize("engine", ENGINES)
def test_both_jobs_release_the_same_bytes(engine, schema, scheduler, files, tmp_path):
    bundle, answers = released("memory", files, schema, tmp_path)
    same_bundle, same_answers = released(engine, files, schema, tmp_path, scheduler)
    assert bundle == same_bundle
    assert answers.equals(same_answers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_rows_of_persons_are_kept(engine, scheduler, tmp_path):
    """Whatever keeps them, and in whatever order they come."""
    frame = FRAME.assign(who=(np.arange(900) ** 2) % 83)
    frame[:400].to_csv(tmp_path / "0.csv", index=False)
    frame[400:].to_parquet(tmp_path / "1.parquet")
    options = {"rho": 1, "insecure_seed": 3, "rows_per_person": 14}
    persons = {**DECLARED, "person": "who"}
    expected = answer(frame[::-1], persons, 2, **options).to_arrow()
    found = answer(tmp_path, persons, 2, engine=engine, scheduler=scheduler, **options)
    assert found.to_arrow().equals(expected)


class PowerCut(Exception):
    pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_may_be_resumed_with_another_engine(engine, scheduler, files, tmp_path, monkeypatch):
    total = Cost.within(2)
    LedgerBook.create(tmp_path / "l.db", total, {"rho": 2.0, "delta": 1e-9}).close()
    reached = []

    def cut(fault):
        reached.append(fault)
        if reached.count(Fault.COMMITTED) == 3:
            raise PowerCut

    options = {"rho": 1, "ledger": tmp_path / "l.db", "workers": 1}
    monkeypatch.setattr("adaptive_qs.machine._handlers", [cut])
    with pytest.raises(PowerCut):
        Synthesizer(engine="memory", **options).fit(files, schema=DECLARED)
    monkeypatch.setattr("adaptive_qs.machine._handlers", [])
    # Another folder for codes is no other run either.
    options.update(engine=engine, scheduler=scheduler, temp_folder=tmp_path)
    again = Synthesizer(resume=True, **options)
    assert again.fit(files, schema=DECLARED).rho_spent_ == pytest.approx(1, rel=0.01)
    again.save(tmp_path / "r.zip")
    (run,) = LedgerBook(tmp_path / "l.db").runs()
    assert run.state == "finished"
    assert run.spent.fits(total)
