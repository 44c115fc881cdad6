"""A cluster of processes as the documentation starts it: it is used, and loses parts of itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import Client

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.machine import Fault
from adaptive_qs.privacy.events import Cost
from adaptive_qs.table.engines import dask, workers

from ..small import SCHEMA
from .children import ROOT

FILES = 6
WORKERS = 2
SECONDS_TO_CONNECT = "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"
"""For which others try to reach a worker that is lost."""


class Cluster:
    """A scheduler and workers in processes of their own."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        script = [sys.executable, ROOT / "docs" / "example" / "cluster.py"]
        self.process = subprocess.Popen(
            [*script, "--port", str(port), "--workers", str(WORKERS)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), SECONDS_TO_CONNECT: "1s"},
        )  # fmt: skip
        self.address = self.process.stdout.readline().strip()
        with self.client() as client:
            client.wait_for_workers(WORKERS, timeout=60)

    @contextmanager
    def client(self):
        with Client(self.address, set_as_default=False, timeout=60) as client:
            yield client

    def kill_worker(self):
        """The one that holds most."""
        with self.client() as client:
            held = client.has_what()
            most = max(held, key=lambda worker: len(held[worker]))
            assert held[most]
            os.kill(client.run(os.getpid, workers=[most])[most], signal.SIGKILL)

    def kill_scheduler(self):
        with self.client() as client:
            pid = client.run_on_scheduler(os.getpid)
        os.kill(pid, signal.SIGKILL)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def clusters():
    """Those that were started; the last one is used while it works."""
    started = []
    yield started
    for cluster in started:
        cluster.stop()


@pytest.fixture
def cluster(clusters):
    if not clusters or clusters[-1].process.poll() is not None:
        clusters.append(Cluster())
    return clusters[-1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a table in several files, its schema, and a ledger for one run."""
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(1)
    for number in range(FILES):
        codes = rng.integers(4, size=200)
        columns = {"a": codes, "b": np.where(codes > 1, "x", "y"), "c": codes == 3}
        pd.DataFrame(columns).to_csv(tmp_path / "data" / f"{number}.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    LedgerBook.create(tmp_path / "l", Cost.within(1), {"rho": 1.0, "delta": 1e-9}).close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_commit(monkeypatch, happens):
    """Have something happen once, when the first noisy counts are in the ledger."""
    waiting = [happens]

    def handler(fault):
        if fault == Fault.COMMITTED and waiting:
            waiting.pop()()

    monkeypatch.setattr("adaptive_qs.machine._handlers", [handler])


def fitted(ledger, **options):
    common = {"rho": 1, "workload": 2, "workers": 1, "insecure_seed": 3, "ledger": ledger}
    Synthesizer(**common, **options).fit("data", schema="s.json")


def charged(ledger):
    """What it has of charges and noisy counts."""
    with closing(LedgerBook(ledger)) as book:
        book.verify()
        return [row.body for row in book.rows() if json.loads(row.body)["kind"] == "released"]


def is_worker(process):
    return any("dask_worker" in word for word in process.cmdline())


def synthesize(*arguments):
    command = "synthesize data --schema s.json --rho 1 --ledger l --workers 1 --out o.csv"
    return main([*command.split(), *arguments])


@pytest.mark.filterwarnings("ignore")
def test_a_lost_worker_changes_neither_counts_nor_charges(cluster, folder):
    LedgerBook.create(folder / "m", Cost.within(1), {"rho": 1.0, "delta": 1e-9}).close()
    fitted("m", engine="memory")
    read = []

    def progress(phase, done, total):
        if phase == "read":
            read.append(done)
            if len(read) == 1:
                cluster.kill_worker()

    fitted("l", engine="dask", scheduler=cluster.address, progress=progress)
    assert read == [*range(1, FILES + 1)]
    assert charged("l") == charged("m") != []  # all noisy counts, and so what follows from them


def test_a_worker_with_another_version_is_refused_before_anything_is_spent(cluster, folder, capfd):
    other = folder / "other" / "adaptive_qs-99.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: adaptive-qs\nVersion: 99\n")
    with cluster.client() as client:
        others = len(client.nthreads())
    worker = subprocess.Popen(
        [sys.executable, "-m", "dask", "worker", cluster.address, "--no-nanny", "--no-dashboard"],
        env={**os.environ, "PYTHONPATH": f"{other.parent}{os.pathsep}{ROOT}"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with cluster.client() as client:
            client.wait_for_workers(others + 1, timeout=60)
        assert synthesize("--engine", "dask", "--scheduler", cluster.address) == 2
    finally:
        worker.terminate()
        worker.wait()
    out, err = capfd.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert "has adaptive_qs 99, and this machine has" in err
    assert not charged("l")
    assert synthesize("--engine", "dask", "--scheduler", cluster.address) == 0  # without it


def test_a_cluster_of_its_own_is_started_once_and_ends_with_the_run(folder, capfd, monkeypatch):
    """Although it has to be there before bins are learnt, and after that."""
    temporary = folder / "temporary"
    temporary.mkdir()
    first, *others = SCHEMA["columns"]
    learning = {**SCHEMA, "columns": [{**first, "private_bins": 3}, *others]}
    (folder / "s.json").write_text(json.dumps(learning))
    started, start = [], subprocess.Popen

    def counted(*command, **how):
        started.append(command)
        return start(*command, **how)

    monkeypatch.setattr(workers.subprocess, "Popen", counted)

    def answered(*arguments):
        command = "answer data --schema s.json --rho 1 --insecure-seed 1 --jobs 1 --out a.csv"
        assert main([*command.split(), "--force", *arguments]) == 0
        return (folder / "a.csv").read_bytes()

    assert answered("--engine", "dask", "--temp-folder", str(temporary)) == answered()
    assert len(started) == 1
    assert not [process for process in psutil.Process().children() if is_worker(process)]
    assert not [*temporary.iterdir()]


def test_a_run_goes_on_when_the_scheduler_is_gone(cluster, folder, monkeypatch, capfd):
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1)
    on_commit(monkeypatch, cluster.kill_scheduler)
    assert synthesize("--engine", "dask", "--scheduler", cluster.address) == 1
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: scheduler {cluster.address}: the scheduler does not answer any")
    assert "--resume" in err
    before = charged("l")
    assert before
    assert synthesize("--resume") == 0
    assert charged("l")[: len(before)] == before
