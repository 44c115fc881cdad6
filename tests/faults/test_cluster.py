"""A cluster of processes as the documentation starts it: it is used, and loses parts of itself."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import closing, contextmanager
from ipaddress import ip_address

import numpy as np
import pandas as pd
import psutil
import pytest
from dask import config
from distributed import Client, LocalCluster, Security, rpc

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.machine import Fault
from adaptive_qs.privacy.events import Cost
from adaptive_qs.table.engines import dask

from ..small import SCHEMA
from .children import ROOT

FILES = 6
WORKERS = 2
PATHS = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
SECONDS_TO_CONNECT = "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"
"""For which others try to reach a worker that is lost."""


class Cluster:
    """A scheduler and workers in processes of their own."""

    works = True

    def __init__(self, folder):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        script = [sys.executable, ROOT / "docs" / "example" / "cluster.py", "--folder", folder]
        self.process = subprocess.Popen(
            [*script, "--port", str(port), "--workers", str(WORKERS)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": PATHS, SECONDS_TO_CONNECT: "1s"},
        )  # fmt: skip
        self.folder = folder
        self.settings = self.process.stdout.readline().strip().removeprefix("DASK_CONFIG=")
        self.address = self.process.stdout.readline().strip()
        with self.client() as client:
            client.wait_for_workers(WORKERS, timeout=60)

    @contextmanager
    def client(self):
        with Client(
            self.address, security=key_in(self.folder), set_as_default=False, timeout=60
        ) as client:
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
        self.works = False  # the process goes on until its workers have ended

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
def cluster(clusters, tmp_path_factory):
    """One that works, with its key in the settings of this process."""
    if not clusters or not clusters[-1].works:
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster") / "key"))
    with in_settings(key_in(clusters[-1].folder)):
        yield clusters[-1]


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


def key_in(folder):
    """What a client needs that holds the key of a cluster."""
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    return Security(tls_ca_file=certificate, tls_client_cert=certificate, tls_client_key=key)


def in_settings(security):
    """Have Dask's settings name a key, until the context is left."""
    names = {"ca-file": "ca_file", "client.cert": "client_cert", "client.key": "client_key"}
    found = {name: getattr(security, f"tls_{attribute}") for name, attribute in names.items()}
    return config.set({f"distributed.comm.tls.{name}": value for name, value in found.items()})


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


def synthesize(*arguments):
    command = "synthesize data --schema s.json --rho 1 --ledger l --workers 1 --out o.csv"
    return main([*command.split(), *arguments])


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_worker_with_another_version_is_refused_before_anything_is_spent(cluster, folder, capfd):
    other = folder / "other" / "adaptive_qs-99.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: adaptive-qs\nVersion: 99\n")
    with cluster.client() as client:
        others = len(client.nthreads())
    worker = subprocess.Popen(
        [sys.executable, "-m", "dask", "worker", cluster.address, "--no-nanny", "--no-dashboard"],
        env={
            **os.environ,
            "PYTHONPATH": f"{other.parent}{os.pathsep}{PATHS}",
            "DASK_CONFIG": cluster.settings,
        },
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


@pytest.mark.slow
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


# Who reaches a cluster.


def sockets_of(process):
    """All network sockets of a process and its descendants."""
    processes = [process, *process.children(recursive=True)]
    return [each for one in processes for each in one.net_connections(kind="inet")]


def listening(found):
    return sorted({each.laddr for each in found if each.status == psutil.CONN_LISTEN})


def answers(address, scheme, security):
    """What one gets by Dask's protocol: who it is that listens."""
    arguments = {} if security is None else security.get_connection_args("client")

    async def ask():
        url = f"{scheme}://{address.ip}:{address.port}"
        async with rpc(url, connection_args=arguments, timeout=3) as server:
            return (await server.identity())["type"]

    try:
        return asyncio.run(asyncio.wait_for(ask(), 30))
    except OSError:
        return None


def answers_http(address, path, context=None):
    """The status and the page of a request by HTTP, or HTTPS without a certificate."""
    kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    how = {} if context is None else {"context": context}
    connection = kind(address.ip, address.port, timeout=30, **how)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    except (TimeoutError, ssl.SSLWantReadError):
        raise
    except (OSError, http.client.HTTPException):  # refused
        return None
    finally:
        connection.close()


def without_certificate():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def is_closed_without_key(address):
    """Whether no way without the key, or with another one, gets an answer."""
    pages = ("/health", "/info/main/workers.html", "/json/counts.json", "/metrics")
    found = [
        answers_http(address, page, how) for page in pages for how in (None, without_certificate())
    ]
    found += [answers(address, "tcp", None), answers(address, "tls", Security.temporary())]
    return found == [None] * len(found)


@pytest.mark.slow
def test_the_cluster_of_the_documentation_is_closed_without_its_key(cluster, folder):
    found = sockets_of(psutil.Process(cluster.process.pid))
    assert all(ip_address(each.laddr.ip).is_loopback for each in found)
    kinds = [answers(address, "tls", key_in(cluster.folder)) for address in listening(found)]
    assert sorted(filter(None, kinds)) == ["Scheduler", "Worker", "Worker"]
    for address, kind in zip(listening(found), kinds):
        if kind is not None:
            assert is_closed_without_key(address)
        else:  # an HTTP server that serves no page
            for page in (
                "/",
                "/health",
                "/info/main/workers.html",
                "/json/counts.json",
                "/metrics",
            ):
                assert answers_http(address, page)[0] == 404
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in cluster.folder.iterdir()}
    assert modes["key.pem"] == 0o600


@pytest.mark.slow
def test_a_scheduler_with_tls_is_used_by_the_settings_and_without_a_warning(cluster, folder):
    command = "synthesize data --schema s.json --rho 9 --out o.csv --engine dask --scheduler"
    done = subprocess.run(
        [sys.executable, "-m", "adaptive_qs", *command.split(), cluster.address],
        env={**os.environ, "PYTHONPATH": PATHS, "DASK_CONFIG": cluster.settings},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "TLS" not in done.stderr


@pytest.mark.slow
def test_a_scheduler_that_knows_another_key_is_refused_in_one_line(
    cluster, folder, capfd, monkeypatch
):
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 1)
    with in_settings(Security.temporary()):
        assert synthesize("--engine", "dask", "--scheduler", cluster.address) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "and that it accepts the certificate" in said
    assert not charged("l")


@pytest.mark.slow
@pytest.mark.parametrize("given", ["address", "client"])
def test_a_scheduler_without_tls_brings_a_warning(folder, given, capfd):
    settings = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", **settings) as local:
        address = local.scheduler_address
        with Client(address, set_as_default=False) as client:
            chosen = address if given == "address" else client
            model = Synthesizer(rho=1, workload=1, engine="dask", scheduler=chosen)
            with pytest.warns(UserWarning, match=f"{address}.*does not use TLS.*run code there"):
                model.fit("data", schema="s.json")
        if given == "address":
            assert synthesize("--engine", "dask", "--scheduler", address) == 0
            said = capfd.readouterr().err
            assert said.count("does not use TLS: codes of the private rows are sent") == 1
