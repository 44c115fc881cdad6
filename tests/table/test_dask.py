"""Counting on a cluster: the same counts however a table is cut, and no word about its rows."""

from __future__ import annotations

import gc
import gzip
import io
import logging
import os
import random
import re
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import combinations, count

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import LocalCluster, get_worker

from adaptive_qs.errors import AdaptiveQsError, DataError, InputError, ResourceExceeded
from adaptive_qs.table import formats
from adaptive_qs.table.engines import ENGINES, EngineOptions, dask, open_engine
from adaptive_qs.table.engines import workers as remote
from adaptive_qs.table.engines.local import Spool
from adaptive_qs.table.schema import Schema

CANARY = "kanarienvogel"
WORDS = ["plain", 'say "no"', "two\nlines", "a,\r\nb", 'late\n"', CANARY]
SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "number", "type": "integer", "min": 0, "max": 299},
            {"name": "word", "type": "categorical", "values": WORDS},
            {"name": "flag", "type": "boolean"},
        ],
        "ignore": ["note"],
    }
)
CLIQUES = [clique for ways in (1, 2, 3) for clique in combinations(range(3), ways)]


@pytest.fixture(scope="module")
def frame():
    rng = random.Random(1)
    rows = [
        (rng.randrange(300), rng.choice(WORDS), rng.choice("yn"), rng.choice(WORDS) * 3)
        for _ in range(2_000)
    ]
    return pd.DataFrame(rows, columns=["number", "word", "flag", "note"])


@pytest.fixture
def opened(dask_client):
    def opened(source, progress=None, **options):
        options = EngineOptions(**{"scheduler": dask_client, **options})
        return open_engine("dask", source, SCHEMA, options, progress)

    return opened


@pytest.fixture
def small_parts(monkeypatch):
    """Blocks, parts and batches of which a small table has many."""
    monkeypatch.setattr(formats, "BLOCK_BYTES", 1 << 11)
    monkeypatch.setattr(dask, "LEAST_PART", 1 << 12)
    monkeypatch.setattr(dask, "HELD_ROWS", 300)
    monkeypatch.setattr(dask, "BATCH_CELLS", 700)
    monkeypatch.setattr(dask, "FAN", 2)


def expected(frame):
    """Counts by Python."""
    rows = list(zip(frame.number, map(WORDS.index, frame.word), (f == "y" for f in frame.flag)))
    shape = (300, 6, 2)
    for clique in CLIQUES:
        counts = np.zeros([shape[i] for i in clique], dtype=np.int64)
        for cell, rows_of_it in Counter(tuple(row[i] for i in clique) for row in rows).items():
            counts[tuple(map(int, cell))] = rows_of_it
        yield counts


def written(frame, folder, form):
    path = folder / f"t.{form}"
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    else:
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=150)
    return path


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet", "frame"])
def test_the_counts_are_those_of_the_rows_however_they_are_cut(
    form, frame, opened, small_parts, tmp_path
):
    source = frame if form == "frame" else written(frame, tmp_path, form)
    steps = []
    with opened(source, lambda *step: steps.append(step)) as engine:
        counted = engine.count_all(CLIQUES)
        assert engine.count_rows() == len(frame)
    for counts, wanted in zip(counted, expected(frame), strict=True):
        np.testing.assert_array_equal(counts, wanted)
        assert counts.dtype == np.int64
    parts = 1 if "csv" in form else len(steps)
    assert steps == [(k + 1, parts) for k in range(parts)]
    assert parts > 5 or "csv" in form


@pytest.fixture
def logged():
    """Everything that Dask logs, at any level."""
    logger, said = logging.getLogger("distributed"), io.StringIO()
    handler, level = logging.StreamHandler(said), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield said
    logger.removeHandler(handler)
    logger.setLevel(level)


def refused(opened, source, **options):
    """What is said of a table, in one line."""
    with pytest.raises(AdaptiveQsError) as caught, opened(source, **options):
        pass
    assert "\n" not in str(caught.value)
    return type(caught.value), str(caught.value)


def test_what_a_worker_refuses_is_one_line_that_names_the_file(
    frame, opened, small_parts, tmp_path, capfd, logged
):
    for number in range(5):
        frame.to_csv(tmp_path / f"{number}.csv", index=False)
    path = tmp_path / "3.csv"
    other = frame.word.where(frame.index != 1_234, f"{CANARY}?")
    frame.assign(word=other).to_csv(path, index=False)
    words = "column 'word' has a value that is not declared: add it to values"
    assert refused(opened, tmp_path)[1].startswith(f"{path}: {words}")
    frame.drop(columns="flag").to_csv(path, index=False)
    words = "column 'flag' of the schema is missing from the data"
    assert refused(opened, tmp_path)[1].startswith(f"{path}: {words}")
    path.write_text(frame.to_csv(index=False)[:-9] + '"')
    assert "quotation mark that is never closed" in refused(opened, tmp_path)[1]
    path.write_bytes(b"PAR1")
    assert refused(opened, tmp_path) == (
        DataError, f"{path}: is not a readable Parquet file: copy or write it again",
    )  # fmt: skip
    shown = capfd.readouterr()
    assert CANARY not in shown.out + shown.err + logged.getvalue()
    assert not shown.err


def test_a_fault_of_ours_on_a_worker_says_where_and_nothing_of_the_rows(
    frame, opened, tmp_path, monkeypatch, capfd, logged
):
    def fail(*_):
        raise KeyError(CANARY)

    monkeypatch.setattr(remote, "encode_chunk", fail)
    kind, words = refused(opened, written(frame, tmp_path, "csv"))
    assert kind is AdaptiveQsError
    assert words.startswith("internal error of a worker (KeyError at workers.py:")
    shown = capfd.readouterr()
    assert CANARY not in shown.out + shown.err + logged.getvalue()


def test_what_tasks_take_and_return_says_nothing_when_it_is_printed(frame):
    codes = remote.PartCodes(SCHEMA.domain(), [np.full(7, 77, np.uint16)] * 3)
    for each in (
        codes,
        remote.Refusal(DataError("x")),
        remote.CountRequest([(0,)]),
        remote.FilePart("p", (9, 9), 9),
    ):
        assert re.fullmatch(r"<adaptive_qs\S+ object at 0x\w+>", repr(each))
    assert sys.getsizeof(codes) >= 3 * 7 * 2  # by which Dask knows what a worker holds


def test_files_that_a_worker_sees_otherwise_are_refused(frame, opened, tmp_path, monkeypatch):
    path = written(frame, tmp_path, "csv")
    seen = remote.file_stamp(path)

    def changed(number):
        """From the so-and-so-many-th look on."""
        looks = count()
        return lambda _: (seen[0], seen[1] + (next(looks) >= number))

    for number in (1, 2):
        monkeypatch.setattr(remote, "file_stamp", changed(number))
        assert refused(opened, path) == (
            DataError,
            f"{path} changed while it was read, or is another file for a worker. Put the "
            "same file on all machines, with the same time of change, and repeat the command.",
        )
    hidden = iter([seen])
    monkeypatch.setattr(remote, "file_stamp", lambda _: next(hidden, None) or os.stat("/none"))
    kind, words = refused(opened, path)
    assert kind is DataError
    assert words.startswith(f"{path} does not exist for a worker. Put it under this path")


def test_workers_with_other_versions_are_refused(frame, opened, tmp_path, monkeypatch):
    path, own = written(frame, tmp_path, "csv"), remote.own_versions()
    for name in ("numpy", "pandas", "openpyxl"):
        monkeypatch.setattr(remote, "own_versions", lambda name=name: own | {name: "1.0"})
        kind, words = refused(opened, path)
        assert kind is InputError
        assert words.startswith("the worker at inproc://")
        assert words.endswith(
            f" has {name} {own[name]}, and this machine has 1.0: install the same versions "
            "everywhere"
        )
    without = {name: version for name, version in own.items() if name != "openpyxl"}
    remote.check_versions("a worker", without, own)  # which only workbooks take

    def later():  # of a worker that joins after the others were asked
        main = threading.current_thread() is threading.main_thread()
        return own if main else own | {"adaptive_qs": "9"}

    monkeypatch.setattr(remote, "own_versions", later)
    assert refused(opened, path)[1].startswith("a worker has adaptive_qs 9, and this machine has ")


def test_too_many_rows_are_refused_as_they_come_and_none_as_well(
    frame, opened, small_parts, tmp_path
):
    came = []

    def check_rows(rows):
        came.append(rows)
        if rows > 1_000:
            raise ResourceExceeded("too many")

    path = written(frame, tmp_path, "parquet")
    assert refused(opened, path, check_rows=check_rows) == (ResourceExceeded, "too many")
    assert came[0] < 1_000 < came[-1] < 2_000
    path = written(frame[:0], tmp_path, "csv")
    words = f"{path} has no rows. It needs at least one."
    assert refused(opened, path) == (DataError, words)


def test_nothing_stays_on_the_cluster(frame, opened, tmp_path, dask_client):
    def held():
        kept = dask_client.run(lambda dask_worker: [*dask_worker.data])
        return [key for keys in kept.values() for key in keys]

    path = written(frame, tmp_path, "csv")
    with opened(path) as engine:
        engine.count_all(CLIQUES)
        assert held()
    refused(opened, tmp_path / "none.csv")
    for _ in range(100):
        if not held():
            break
        time.sleep(0.02)
    assert not held()


def test_every_worker_loads_the_program_first_and_then_gets_its_share(
    frame, opened, small_parts, tmp_path, monkeypatch, dask_client
):
    happened = []

    def noted(what, call):
        def run(*arguments):
            happened.append((what, get_worker().address))
            return call(*arguments)

        return run

    monkeypatch.setattr(remote, "load_programs", noted("load", remote.load_programs))
    monkeypatch.setattr(remote, "encode_chunk", noted("encode", remote.encode_chunk))
    with opened(written(frame, tmp_path, "parquet")):
        pass
    workers = set(dask_client.nthreads())
    assert {worker for what, worker in happened[:2]} == workers
    assert [what for what, _ in happened[:3]] == ["load", "load", "encode"]
    assert {worker for what, worker in happened[2:]} == workers


@contextmanager
def on_own_cluster(path):
    """An engine on a table, on a cluster whose two workers can be closed."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(processes=False, silence_logs=50, **settings) as cluster:
        options = EngineOptions(scheduler=cluster.scheduler_address)
        with open_engine("dask", path, SCHEMA, options) as engine:
            yield (
                engine,
                [partial(cluster.sync, worker.close) for worker in cluster.workers.values()],
            )


def test_workers_that_are_lost_while_they_count(frame, small_parts, tmp_path, monkeypatch):
    monkeypatch.setattr(dask, "WORKERS_SECONDS", 0.6)
    table = written(frame, tmp_path, "parquet")
    with on_own_cluster(table) as (engine, (close_first, close_second)):
        close_first()
        for counts, wanted in zip(engine.count_all(CLIQUES), expected(frame), strict=True):
            np.testing.assert_array_equal(counts, wanted)
        close_second()
        with pytest.raises(AdaptiveQsError, match="no worker is left: start some, and repeat"):
            engine.count_all(CLIQUES)


def test_a_part_that_is_read_again_must_have_the_same_rows(frame, small_parts, tmp_path):
    """Files are replaced by others of the same size and time of change, and a worker is lost."""
    paths = [tmp_path / f"{k}.csv" for k in range(8)]
    for path in paths:
        path.write_text("number,word,flag,note\n" + "7,plain,y,n\n" * 500)
    with on_own_cluster(tmp_path) as (engine, (close_first, _)):
        assert engine.count_all([(0,)])[0][7] == 4_000
        for path in paths:
            before = path.stat()
            path.write_text(path.read_text().replace("7,plain", "8,plain"))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        close_first()
        for count in (engine.count_all, engine.occupied):
            with pytest.raises(DataError, match="the table changed before a worker read a part"):
                count([(0, 1)])


def test_bins_are_learnt_from_the_rows_that_workers_count(frame, tmp_path, dask_client):
    """The coordinator reads a file to learn from it, and workers read it to count it."""
    path = written(frame, tmp_path, "csv")
    spool = Spool(path, SCHEMA, EngineOptions(), keeps=False, sums=True)
    with spool.open() as source:
        for _ in source.read(SCHEMA.names):
            pass
    options = EngineOptions(scheduler=dask_client)
    with open_engine("dask", spool, SCHEMA, options) as engine:
        assert engine.count_rows() == len(frame)
    written(frame[::-1].assign(flag="y"), tmp_path, "csv")
    with (
        pytest.raises(DataError, match="changed while it was read"),
        open_engine("dask", spool, SCHEMA, options),
    ):
        pass


def test_a_fault_of_whoever_shows_progress_stays_what_it_is(frame, opened):
    def progress(done, total):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), opened(frame, progress):
        pass


NO_ANSWER = "Cannot connect to the scheduler at {!r}"
ADDRESSES = ["nonsense://", "tcp://host:port", "tcp://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        (5, "scheduler is 5. Use an address or a distributed.Client"),
        *((address, NO_ANSWER.format(address)) for address in ADDRESSES),
        ("tls://127.0.0.1:1", NO_ANSWER.format("tls://127.0.0.1:1")),
    ],
)
def test_what_is_no_scheduler_is_refused(scheduler, words, frame, opened, monkeypatch, capfd):
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 0.3)
    kind, said = refused(opened, frame, scheduler=scheduler)
    assert kind is InputError
    assert said.startswith(words)
    gc.collect()  # a client that failed half way is freed with a traceback
    assert not capfd.readouterr().err


def test_without_a_cluster_it_is_said_what_to_name(frame):
    with pytest.raises(InputError, match=r"engine dask counts on a cluster. Name its --scheduler"):
        open_engine("dask", frame, SCHEMA, EngineOptions()).__enter__()


def test_without_dask_it_is_said_what_to_install(monkeypatch, frame):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "adaptive_qs.table.engines.dask")
    monkeypatch.setitem(ENGINES.data, "dask", "adaptive_qs.table.engines.dask:open_dask")
    with pytest.raises(InputError) as caught:
        open_engine("dask", frame, SCHEMA, EngineOptions())
    assert str(caught.value) == "engine dask is not installed: pip install 'adaptive-qs[dask]'"
