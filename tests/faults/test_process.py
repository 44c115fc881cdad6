"""The real program on the real sample, killed in the middle, with a ledger."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.table.files import sample_dataset

from .children import ROOT

ADULT = sample_dataset()


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "adaptive_qs", *arguments],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on(tmp_path):
    assert start(tmp_path, "ledger", "create", "--ledger", "l", "--epsilon", "1.2").wait() == 0
    command = [
        "synthesize", str(ADULT.data), "--schema", str(ADULT.schema), "--epsilon", "1",
        "--ledger", "l", "--release", "r.zip", "--json",
    ]  # fmt: skip
    process = start(tmp_path, *command)
    log = tmp_path / "l-wal"
    while process.poll() is None and (not log.exists() or log.stat().st_size < 200_000):
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = _rows(tmp_path)
    assert len(before) > 5
    refused = start(tmp_path, *command)
    assert "left of" in refused.communicate(timeout=120)[1]
    assert refused.returncode == 3
    resumed = start(tmp_path, *command, "--resume")
    out, err = resumed.communicate(timeout=120)
    said = [line for line in err.splitlines() if "independent of all" not in line]
    assert (resumed.returncode, said) == (0, [])
    after = _rows(tmp_path)
    assert after[: len(before)] == before
    with closing(LedgerBook(tmp_path / "l")) as book:
        (run,) = book.runs()
    assert run.state == "finished"
    assert float(run.spent.rho) <= json.loads(out)["rho"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l", "l.key", "l.mark", "r.zip"]


def _rows(folder):
    with closing(LedgerBook(folder / "l")) as book:
        book.verify()
        return list(book.rows())
