"""Runs one command in a process group of its own and reports on it; standard library alone.

    python -I -S supervise.py REQUEST.json

It is a process of its own so that the command's peak memory starts from a small parent (a child's
``ru_maxrss`` begins with what its parent held), and so that nothing is left behind: the whole
group is killed at the time limit, when the command ends, and when standard input closes, which
also happens when the harness itself is killed.

REQUEST.json: {"command": [...], "environment": {...}, "folder": ..., "log": ..., "limit_s": ...}.
Prints one line: {"status": exit status or -signal, "seconds": wall clock, "cpu_seconds": ...,
"peak_memory_mb": of the largest process, "limit_reached": ...}.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import NoReturn


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # Out of memory, the system ends the cell and not the harness.
    start = time.monotonic()
    with open(request["log"], "wb") as log:
        try:
            process = subprocess.Popen(
                request["command"],
                cwd=request["folder"],
                env=request["environment"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            log.write(f"cannot be started: {error.strerror}\n".encode())
            log.flush()
            report(127, time.monotonic() - start)
    late = threading.Event()

    def end_at_limit() -> None:
        late.set()
        kill_group(process.pid)

    def end_with_harness() -> None:
        sys.stdin.buffer.read()
        kill_group(process.pid)
        os._exit(1)

    timer = threading.Timer(request["limit_s"], end_at_limit)
    timer.daemon = True
    timer.start()
    threading.Thread(target=end_with_harness, daemon=True).start()
    # The group is killed before its leader is reaped: its number cannot be another's by then.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    seconds = time.monotonic() - start
    timer.cancel()
    kill_group(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    report(
        os.waitstatus_to_exitcode(status),
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / unit,
        late.is_set(),
    )


def report(
    status: int,
    seconds: float,
    cpu_seconds: float = 0.0,
    peak_memory_mb: float = 0.0,
    limit_reached: bool = False,
) -> NoReturn:
    outcome = {
        "status": status,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_memory_mb": peak_memory_mb,
        "limit_reached": limit_reached,
    }
    print(json.dumps(outcome), flush=True)
    os._exit(0)


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    main()
