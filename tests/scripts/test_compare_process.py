"""A supervised process: its limit, its group, its memory, and why it failed."""

import os
import subprocess
import sys
import time

import pytest

from scripts.compare.process import Stopped, environment, reason, run_supervised, without_paths

GRANDCHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
{then}
"""


def run(tmp_path, code, limit_s=60.0, started=lambda supervisor: None):
    return run_supervised([sys.executable, "-S", "-c", code], tmp_path, 1, limit_s, started)


def wait_until_gone(pid):
    """Whether a process is dead, or a zombie that its new parent has not reaped yet."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_the_limit_ends_the_whole_group(tmp_path):
    ended = run(tmp_path, GRANDCHILD.format(then="time.sleep(600)"), limit_s=0.7)
    assert ended.limit_reached
    assert ended.status == -9
    assert 0.7 <= ended.seconds < 20
    assert wait_until_gone(int((tmp_path / "log.txt").read_text()))


def test_what_a_process_leaves_behind_ends_with_it(tmp_path):
    ended = run(tmp_path, GRANDCHILD.format(then=""))
    assert (ended.status, ended.limit_reached) == (0, False)
    assert wait_until_gone(int((tmp_path / "log.txt").read_text()))


def test_closing_the_supervisors_input_ends_the_group(tmp_path):
    supervisors = []

    def started(supervisor):
        while not (tmp_path / "log.txt").exists() or not (tmp_path / "log.txt").read_text():
            time.sleep(0.01)
        supervisors.append(supervisor)
        supervisor.stdin.close()

    with pytest.raises(Stopped):
        run(tmp_path, GRANDCHILD.format(then="time.sleep(600)"), started=started)
    assert wait_until_gone(int((tmp_path / "log.txt").read_text()))
    assert supervisors[0].returncode == 1


def test_memory_is_that_of_the_process_alone(tmp_path):
    """Even when the harness holds more than the process ever does."""
    held = bytearray(300 * 2**20)
    small = run(tmp_path, "pass")
    large = run(tmp_path, "x = bytearray(b'x') * (100 * 2**20)")
    assert len(held) > 0
    assert small.peak_memory_mb < 60
    assert small.peak_memory_mb + 95 < large.peak_memory_mb < small.peak_memory_mb + 140


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit(3)", "exit status 3"),
        ("open('/no/such/folder/file')", "No such file or directory: 'file'"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "out of memory?"),
    ],
)
def test_a_failure_is_told_in_one_line_without_paths(tmp_path, code, said):
    ended = run(tmp_path, code)
    assert ended.status != 0
    told = reason(ended, tmp_path / "log.txt")
    assert said in told
    assert "\n" not in told
    assert "/no/such" not in told


def test_a_command_that_cannot_start_has_failed(tmp_path):
    ended = run_supervised(["/no/such/python"], tmp_path, 1, 5.0, lambda supervisor: None)
    assert ended.status == 127
    assert "No such file" in reason(ended, tmp_path / "log.txt")


def test_threads_are_declared_and_peers_do_not_see_this_project(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "ours")
    peer, own = environment(3, own=False), environment(3, own=True)
    assert {peer["OMP_NUM_THREADS"], peer["NUMBA_NUM_THREADS"]} == {"3"}
    assert "PYTHONPATH" not in peer
    assert "VIRTUAL_ENV" not in peer
    code = "import scripts.compare.mechanisms"
    subprocess.run([sys.executable, "-c", code], env=own, check=True, cwd=os.sep)


def test_paths_are_cut_to_names_of_files():
    assert without_paths("in /home/me/x.py, line 3: a/b and https://site/page") == (
        "in x.py, line 3: a/b and https://site/page"
    )
