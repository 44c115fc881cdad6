"""Tables in several files and in databases, by any engine; and what stands against them."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.io import Stopped, request
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.table import encode
from adaptive_qs.table.encode import encode_chunk
from adaptive_qs.table.engines import ENGINES, EngineOptions, local, open_engine
from adaptive_qs.table.schema import Schema

from .conftest import done, refused
from .transcripts import write_parts

FIT = ("--schema", "s.json", "--rho", 1)
SEEDS = ("--insecure-seed", 5, "--seed", 5)
BASE = "t.db::people"


@pytest.fixture
def parts(folder):
    """The rows of t.csv in three files, and in a database next to a private name."""
    write_parts()
    return folder


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_in_files_and_databases_give_the_same_table(run, parts, engine, scheduler):
    how = ("--engine", engine, *(() if scheduler is None else ("--scheduler", scheduler)))
    found = set()
    more = [("d/",), (BASE, *how)] if engine == "auto" else []
    for table in (("t.csv",), ("d/*", *how), *more):
        given = (*FIT, *SEEDS, "--out", "o.csv", "--force", "--temp-folder", parts)
        done(run("synthesize", *table, *given))
        found.add(Path("o.csv").read_bytes())
    assert len(found) == 1


def test_a_table_that_changed_while_it_was_read_leaves_no_codes(parts, monkeypatch):
    def rewritten(*cells):
        Path("t.csv").write_text(Path("t.csv").read_text() + "\n")
        return encode_chunk(*cells)

    monkeypatch.setattr(encode, "encode_chunk", rewritten)
    (parts / "codes").mkdir()
    fresh = Synthesizer(rho=1, engine="stream", temp_folder=parts / "codes")
    with pytest.raises(InputError, match="changed while it was read"):
        fresh.fit(parts / "t.csv", schema=parts / "s.json")
    assert not list((parts / "codes").iterdir())


def test_a_signal_that_breaks_off_a_query_stops_the_command(run, parts, unspent, monkeypatch):
    def broken_off(*_):
        with pytest.raises(Stopped):
            request(signal.SIGTERM)
        raise InputError("the query failed")

    monkeypatch.setattr("adaptive_qs.run.states.open_engine", broken_off)
    said = refused(run("answer", BASE, *FIT, "--out", "a.csv"), code=128 + signal.SIGTERM)
    assert said == "error: stopped before the end: no output was written\n"


def test_databases_that_cannot_be_read_are_refused(run, parts, unspent, monkeypatch):
    command = ("answer", BASE, *FIT, "--out", "a.csv")
    hold = "import duckdb, sys; c = duckdb.connect('t.db'); print(1, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", hold], **pipes) as holder:
        holder.stdout.readline()
        assert "is in use by another program" in refused(run(*command))
        holder.stdin.close()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "pip install 'adaptive-qs[duckdb]'" in refused(run(*command))


def learn_age():
    """Have the schema leave the bins of a column open."""
    content = json.loads(Path("s.json").read_text())
    content["columns"][1] = {"name": "age", "type": "integer", "private_bins": 3}
    Path("s.json").write_text(json.dumps(content))
    return content


@pytest.mark.parametrize("engine", ["memory", "stream"])
def test_no_room_is_refused_before_anything_is_learnt(run, parts, unspent, monkeypatch, engine):
    learn_age()
    monkeypatch.setattr(local, "SPARE_BYTES", 2**60)
    monkeypatch.setattr("adaptive_qs.run.tables.CODE_BYTES", 2**27)
    said = refused(run("synthesize", "t.csv", *FIT, "--engine", engine, "--out", "o.csv"), code=4)
    words = "no room for the codes of the table, 3 bytes for each row"
    assert ("raise --max-memory" if engine == "memory" else words) in said


def test_what_cannot_be_opened_is_refused_before_learning(run, parts, unspent, monkeypatch):
    monkeypatch.setattr("adaptive_qs.table.engines.dask.CONNECT_SECONDS", 1)
    content = learn_age()
    nobody = ("--scheduler", "tcp://127.0.0.1:9")
    outcome = run("synthesize", "t.csv", *FIT, *nobody, "--out", "o.csv")
    warning, said = outcome.err.splitlines()
    assert (outcome.code, outcome.out) == (2, "")
    assert "does not use TLS" in warning
    assert "tcp://127.0.0.1:9" in said
    assert "spent" not in outcome.err
    frame = pd.read_csv("t.csv")
    with pytest.raises(InputError, match="Cannot connect"):
        Synthesizer(rho=1, engine="dask", scheduler=nobody[1]).fit(frame, schema=content)


@pytest.mark.parametrize("engine", ["auto", "dask"])
def test_what_a_cluster_cannot_take_is_refused_before_learning(
    run, parts, unspent, monkeypatch, dask_client, engine
):
    from adaptive_qs.table.engines import workers

    learn_age()
    how = ("--engine", engine, "--scheduler", dask_client.scheduler.address)
    words = (*FIT, *how, "--out", "o.csv")
    real = workers.file_stamp

    def seen(path):  # by the coordinator, whose thread is the main one
        main = threading.current_thread() is threading.main_thread()
        return real(path if main or not path.endswith("b.csv.gz") else "/none")

    monkeypatch.setattr(workers, "file_stamp", seen)
    assert "d/b.csv.gz does not exist for a worker" in refused(run("synthesize", "d", *words))
    monkeypatch.setattr("adaptive_qs.run.tables.CODE_BYTES", 2**27)
    options = {"rho": 1, "engine": engine, "scheduler": dask_client}
    with pytest.raises(ResourceExceeded, match="raise --max-memory"):
        Synthesizer(**options).fit(pd.read_csv("t.csv"), schema=parts / "s.json")


def test_codes_on_disk_have_no_name(parts):
    schema, temporary = Schema.load("s.json"), parts / "temporary"
    temporary.mkdir()
    options = EngineOptions(temp_folder=temporary)
    with open_engine("stream", "t.csv", schema, options) as engine:
        assert engine.count_rows() == 300
        assert not os.listdir(temporary)


GROWTH = """
import sys
from adaptive_qs.cli.entry import main
from adaptive_qs.machine import peak_memory_mb

words = sys.argv[1:]
peaks = []
for table in ("few", "many"):
    code = main(["synthesize", f"{table}.parquet", "--release", f"{table}.zip", *words])
    peaks.append(peak_memory_mb())
print(code, *peaks)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak of memory is told")
def test_a_long_table_takes_no_more_memory_than_a_short_one(parts):
    """The whole command; the codes of the longer table are 73 MB."""
    columns, block, ceiling = 2, 2**17, 700
    table = pa.table({f"c{i}": np.arange(block) % 3 for i in range(columns)})
    Path("wide.json").write_text(json.dumps(dict.fromkeys(table.column_names, 70_000)))
    for name, blocks in (("few", 6), ("many", 70)):
        with pq.ParquetWriter(f"{name}.parquet", table.schema) as writer:
            for _ in range(blocks):
                writer.write_table(table)
    words = ["--schema", "wide.json", "--ways", "1", "--epsilon", "1", "--engine", "stream"]
    words += ["--max-memory", f"{ceiling}MB", "--workers", "2"]
    ended = subprocess.run(
        [sys.executable, "-c", GROWTH, *words], capture_output=True, text=True, check=True
    )
    code, few, many = ended.stdout.splitlines()[-1].split()
    assert code == "0"
    assert float(many) < float(few) + 55
    assert float(many) < 1.2 * ceiling
