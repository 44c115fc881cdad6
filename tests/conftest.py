"""For all tests: the same examples on every machine, no deadlines, and workers of ``-n auto``."""

import gc
import os

import pytest
from hypothesis import settings

from adaptive_qs.machine import plan_workers

MOST_WORKERS = 4
"""Each collects all tests for itself, which takes nine seconds and over half a gigabyte."""

# Test processes share the cores already. Further threads of linear algebra mostly wait for each
# other, which takes as much of the processor as work does. What is said of a number of threads is
# tested with that number; programs that tests start inherit this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy is not loaded yet

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes that share the suite; none for tests that are named, or on one core."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    workers = min(plan_workers(None), MOST_WORKERS)
    return 0 if named or workers == 1 else workers


@pytest.fixture(scope="session")
def dask_client():
    """A client of a cluster of two threads in this process, which talks to no network."""
    from distributed import Client

    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
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
