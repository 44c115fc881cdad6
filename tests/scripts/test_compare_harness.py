"""The command as a user runs it, with peers that cost nothing; its processes and its file."""

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.compare import Complaint
from scripts.compare import __main__ as compare
from scripts.compare.store import Store, read_records

ROOT = Path(__file__).resolve().parents[2]

PEER = """
import json, os, shutil, sys, time
from pathlib import Path
job = json.loads(Path(sys.argv[1]).read_text())
here = Path(__file__).parent
with open(here / "started.txt", "a") as file:
    file.write(f"{job['epsilon']} {job['seed']}\\n")
if (here / "slow").exists():
    time.sleep(0.15)
if job["seed"] == 13 and not (here / "mended").exists():
    sys.exit("error: the number 13")
if job["seed"] == 600:
    time.sleep(600)
shutil.copyfile(job["codes"], job["out"])
Path(job["report"]).write_text(json.dumps({"versions": {"fake": "1"}, "seconds": {}}))
"""


class Bench:
    """A folder with a fake peer, its environment, and a grid of it on a made-up table."""

    def __init__(self, folder):
        self.folder, self.peers, self.results = folder, folder / "peers", folder / "r.jsonl"
        self.peers.mkdir()
        (self.peers / "copy.py").write_text(PEER)
        described = {"copy": "there", "absent": "missing"}
        (self.peers / "peers.json").write_text(
            json.dumps({n: {"script": "copy.py", "environment": e} for n, e in described.items()})
        )
        python = folder / "environments" / "there" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)

    def options(self, *more, **block):
        grid = self.folder / "grid.json"
        usual = {"tables": ["weak@60"], "ways": [1], "epsilons": [1.0, 2.0], "seeds": [1, 2]}
        usual |= {"mechanisms": ["copy"], "limit_s": 60.0}
        grid.write_text(json.dumps({"blocks": [usual | block]}))
        return [
            "--grid", str(grid), "--data", str(self.folder), "--results", str(self.results),
            "--peers", str(self.folder / "environments"), "--peer-scripts", str(self.peers), *more,
        ]  # fmt: skip

    def run(self, *more, **block):
        return CliRunner().invoke(compare.app, self.options(*more, **block))

    def started(self):
        path = self.peers / "started.txt"
        return path.read_text().splitlines() if path.exists() else []

    def records(self):
        return [json.loads(line) for line in self.results.read_text().splitlines()]

    def is_clear(self):
        return not (self.folder / ".r.jsonl.work").exists()


def wait_until(reached, seconds=60):
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.compare.plots.write_plots", lambda records, results: [])
    return Bench(tmp_path)


def test_bad_ends_are_recorded_said_and_retried_on_demand_only(bench):
    wanted = {"mechanisms": ["copy", "absent"], "epsilons": [1.0], "seeds": [1, 13, 600]}
    wanted["limit_s"] = 1.5
    result = bench.run("--jobs", "1", **wanted)
    assert result.exit_code == 1
    ends = {(r["mechanism"], r["seed"]): (r["outcome"], r["why"]) for r in bench.records()}
    assert ends["copy", 1] == ("finished", "")
    assert ends["copy", 13] == ("failed", "error: the number 13")
    assert ends["copy", 600] == ("unfinished", "unfinished after 1.5 s")
    assert ends["absent", 1] == ("not installed", "no environment 'missing'")
    assert "NOT INSTALLED, no environment 'missing'" in result.stderr
    assert "1 failed, 1 finished, 3 not installed, 1 unfinished" in result.stderr
    page = (bench.folder / "r.md").read_text()
    assert "absent on weak@60, 1-way, ε = 1: 3 not installed" in page

    assert "6 cells, 6 done before" in bench.run(**wanted).stderr
    assert len(bench.records()) == 6
    (bench.peers / "mended").touch()
    environments = bench.folder / "environments"
    (environments / "missing").symlink_to(environments / "there")
    mended = bench.run("--retry-failed", "--only", "seed=1,13", **wanted)
    assert mended.exit_code == 0, mended.stderr
    assert "4 cells, 1 done before" in mended.stderr
    assert "4 finished" in mended.stderr


@pytest.mark.parametrize(
    ("block", "more", "said"),
    [
        ({"mechanisms": ["nobody"]}, [], "mechanism 'nobody' is unknown"),
        ({}, ["--only", "seed=99"], "no cell of the grid"),
        ({}, ["--grid", "nowhere"], "grid 'nowhere'"),
        ({}, ["--digest-only"], "r.jsonl: cannot be read: run a grid first"),
        ({"tables": ["adult"]}, [], "error: table adult: "),
    ],
)
def test_mistakes_are_refused_in_one_line_before_anything_runs(bench, block, more, said):
    result = bench.run(*more, **block)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert not bench.results.exists() or (said.startswith("error") and not bench.records())


@pytest.mark.parametrize("kept", range(1, 20, 6))
def test_a_torn_last_line_is_passed_over_dropped_and_the_next_one_is_whole(tmp_path, kept):
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.add({"key": "a", "value": 1})
        path.write_bytes(path.read_bytes() + b'{"key": "b", "value": 2}\n'[:kept])
        assert list(read_records(path)) == ["a"]  # without the lock
    with Store(path) as store:
        assert store.dropped
        assert list(store.records) == ["a"]
        store.add({"key": "c"})
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "c"]


def test_two_harnesses_on_one_file_are_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    with Store(path), pytest.raises(Complaint, match="another harness"):
        Store(path)
    with Store(path) as store:
        store.add({"key": "a"})
