"""The command as a user runs it, with peers that cost nothing: crash, resume, refusals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.compare import __main__ as compare

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


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A folder with a fake peer, its environment, and a grid of it on a made-up table."""
    monkeypatch.setattr("scripts.compare.plots.write_plots", lambda records, results: [])
    scripts = tmp_path / "peers"
    scripts.mkdir()
    (scripts / "copy.py").write_text(PEER)
    described = {
        "copy": {"script": "copy.py", "environment": "there"},
        "absent": {"script": "copy.py", "environment": "missing"},
    }
    (scripts / "peers.json").write_text(json.dumps(described))
    python = tmp_path / "environments" / "there" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return tmp_path


def command(bench, *more, mechanisms=("copy",), epsilons=(1.0, 2.0), seeds=(1, 2), limit_s=60.0):
    block = {
        "tables": ["weak@60"], "ways": [1], "epsilons": epsilons, "mechanisms": mechanisms,
        "seeds": seeds, "limit_s": limit_s,
    }  # fmt: skip
    grid = bench / "grid.json"
    grid.write_text(json.dumps({"blocks": [block]}))
    return [
        sys.executable, "-m", "scripts.compare", "--grid", str(grid), "--data", str(bench),
        "--results", str(bench / "r.jsonl"), "--peers", str(bench / "environments"),
        "--peer-scripts", str(bench / "peers"), *more,
    ]  # fmt: skip


def run(bench, *more, **block):
    """In this process, which is faster; those that are killed run in one of their own."""
    return CliRunner().invoke(compare.app, command(bench, *more, **block)[3:])


def started(bench):
    path = bench / "peers" / "started.txt"
    return path.read_text().splitlines() if path.exists() else []


def records(bench):
    return [json.loads(line) for line in (bench / "r.jsonl").read_text().splitlines()]


def test_after_kill_9_a_rerun_repeats_no_finished_cell(bench):
    (bench / "peers" / "slow").touch()
    seeds = list(range(10))
    first = subprocess.Popen(
        command(bench, "--jobs", "2", seeds=seeds), stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while (
        len((bench / "r.jsonl").read_bytes().split(b"\n")) < 6
        if (bench / "r.jsonl").exists()
        else True
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (bench / "peers" / "slow").unlink()
    before = records(bench)
    assert 5 <= len(before) < 20
    time.sleep(0.3)
    assert len(started(bench)) <= len(before) + 2, "a cell ran on after the harness was killed"

    again = run(bench, "--jobs", "2", seeds=seeds)
    assert again.exit_code == 0, again.stderr
    assert f"20 cells, {len(before)} done before" in again.stderr
    after = records(bench)
    assert after[: len(before)] == before
    assert len({record["key"] for record in after}) == len(after) == 20
    finished = {f"{record['epsilon']} {record['seed']}" for record in before}
    assert [n for cell, n in Counter(started(bench)).items() if cell in finished] == [1] * len(
        before
    )
    assert not (bench / ".r.jsonl.work").exists()

    once_more = run(bench, seeds=seeds)
    assert "20 cells, 20 done before" in once_more.stderr
    assert len(records(bench)) == 20


def test_bad_ends_are_recorded_said_and_retried_on_demand_only(bench):
    wanted = {"mechanisms": ["copy", "absent"], "epsilons": [1.0], "seeds": [1, 13, 600]}
    result = run(bench, "--jobs", "1", limit_s=1.5, **wanted)
    assert result.exit_code == 1
    ends = {(r["mechanism"], r["seed"]): (r["outcome"], r["why"]) for r in records(bench)}
    assert ends["copy", 1] == ("finished", "")
    assert ends["copy", 13] == ("failed", "error: the number 13")
    assert ends["copy", 600] == ("unfinished", "unfinished after 1.5 s")
    assert ends["absent", 1] == ("not installed", "no environment 'missing'")
    assert "NOT INSTALLED, no environment 'missing'" in result.stderr
    assert "1 failed, 1 finished, 3 not installed, 1 unfinished" in result.stderr
    page = (bench / "r.md").read_text()
    assert "absent on weak@60, 1-way, ε = 1: 3 not installed" in page

    assert "6 cells, 6 done before" in run(bench, limit_s=1.5, **wanted).stderr
    assert len(records(bench)) == 6
    (bench / "peers" / "mended").touch()
    (bench / "environments" / "missing").symlink_to(bench / "environments" / "there")
    mended = run(
        bench, "--retry-failed", "--only", "seed=1,13", limit_s=1.5, **wanted
    )  # fmt: skip
    assert mended.exit_code == 0, mended.stderr
    assert "4 cells, 1 done before" in mended.stderr
    assert "4 finished" in mended.stderr


def test_a_copied_table_has_no_error_and_says_what_it_took(bench):
    assert run(bench, seeds=[1], epsilons=[1.0]).exit_code == 0
    (record,) = records(bench)
    assert record["table_error"]["mean_l1"] == record["table_error"]["max_l1"] == 0
    assert record["table_error"]["total_variation"] == {"1": 0, "2": 0, "3": 0}
    assert record["answer_error"] is record["answer_seconds"] is None
    assert 0 < record["table_seconds"] == record["cpu_seconds"] < 60
    assert 1 < record["peak_memory_mb"] < 100
    assert record["machine"]["cells_at_once"] == 1
    assert record["versions"] == {"fake": "1"}
    assert record["shape"] == [60, 12]
    assert str(bench) not in json.dumps(record)


@pytest.mark.parametrize(
    ("block", "more", "said"),
    [
        ({"mechanisms": ["nobody"]}, [], "mechanism 'nobody' is unknown"),
        ({}, ["--only", "seed=99"], "no cell of the grid"),
        ({}, ["--grid", "nowhere"], "grid 'nowhere'"),
        ({}, ["--digest-only"], "r.jsonl: cannot be read: run a grid first"),
    ],
)
def test_mistakes_are_refused_in_one_line(bench, block, more, said):
    result = run(bench, *more, **block)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert not (bench / "r.jsonl").exists()


def test_a_table_that_is_not_there_is_refused_before_anything_runs(bench):
    grid = command(bench, seeds=[1])[4]
    Path(grid).write_text(Path(grid).read_text().replace("weak@60", "adult"))
    result = CliRunner().invoke(
        compare.app, ["--grid", grid, "--data", str(bench), "--results", str(bench / "r.jsonl"),
                      "--peer-scripts", str(bench / "peers")],
    )  # fmt: skip
    assert result.exit_code == 2
    assert result.stderr.startswith("error: table adult: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_stopped_harness_keeps_what_ended_and_leaves_nothing_running(bench):
    process = subprocess.Popen(
        command(bench, epsilons=[1.0], seeds=[1, 600]), stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    deadline = time.monotonic() + 60
    while len(started(bench)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert "the same command continues" in said
    assert [record["seed"] for record in records(bench)] == [1]
    assert not (bench / ".r.jsonl.work").exists()
