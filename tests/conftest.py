"""For all tests: the same examples on every machine, no deadlines, and workers of ``-n auto``."""

import atexit
import gc
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

from adaptive_qs.machine import plan_workers

MOST_WORKERS = 4
"""Each collects all tests for itself, which takes nine seconds and over half a gigabyte."""

# Test processes share the cores already. Further threads, of linear algebra and of the package,
# mostly wait for each other, which takes as much of the processor as work does. What is said of a
# number of threads is tested with that number. Programs that tests start inherit the first limit.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy is not loaded yet


def _files_in_memory() -> None:
    """Temporary files go to memory where there is plenty, and where programs may be started from.

    The suite makes thousands of small files durable, and a disk lets it wait for each. They are
    gone at the end: with TMPDIR=/tmp those of tests that failed are kept.
    """
    memory, enough_bytes = "/dev/shm", 4 * 2**30
    if (
        "TMPDIR" not in os.environ  # the workers share the folder of the process that starts them
        and os.access(memory, os.W_OK)
        and not os.statvfs(memory).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(memory).free > enough_bytes
    ):
        for left in Path(memory).glob("adaptive-qs-tests-*-*"):  # by runs that were killed
            if not Path("/proc", left.name.split("-")[3]).exists():
                shutil.rmtree(left, ignore_errors=True)
        folder = tempfile.mkdtemp(prefix=f"adaptive-qs-tests-{os.getpid()}-", dir=memory)
        os.chmod(folder, 0o711)  # some tests do without the rights of root
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


_files_in_memory()
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("suite")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes that share the suite; none for tests that are named, or on one core."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    workers = min(plan_workers(None), MOST_WORKERS)
    return 0 if named or workers == 1 else workers


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most of the cases of a test that is marked one_in(n) to ``pytest -m slow``.

    Every n-th case stays. Choose n without a factor in common with the lengths of the axes, so that
    the cases that stay have every value of every axis.
    """
    met: Counter[str] = Counter()
    for item in items:
        if (mark := item.get_closest_marker("one_in")) is not None:
            name = item.nodeid.partition("[")[0]
            if met[name] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            met[name] += 1


@pytest.fixture(autouse=True, scope="session")
def _one_core() -> Iterator[None]:
    """What takes as many threads as there are cores takes one."""
    with mock.patch.object(os, "sched_getaffinity", return_value={0}, create=True):
        yield


@pytest.fixture
def quick_tables(monkeypatch):
    """Fit tables with few rows, for tests that are not about their quality."""
    from adaptive_qs.generate.rows import SynthesisSettings  # which loads NumPy

    quick = partial(SynthesisSettings, fit_rows=500)
    monkeypatch.setattr("adaptive_qs.release.release.SynthesisSettings", quick)


@pytest.fixture(scope="session")
def dask_client():
    """A client of a cluster of two threads in this process, which talks to no network."""
    from distributed import Client

    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, silence_logs=50, **settings) as client:
        yield client


@pytest.fixture
def scheduler(request):
    """Where the engine that a test is run with finds its workers, if it has such."""
    if request.node.callspec.params["engine"] != "dask":
        return None
    return request.getfixturevalue("dask_client").scheduler.address


def pytest_collection_finish() -> None:
    """Leave the tests and modules that were collected out of every later search for garbage."""
    gc.collect()
    gc.freeze()
