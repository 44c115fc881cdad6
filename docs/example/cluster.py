"""A Dask cluster on this machine: a scheduler and two workers, until it is stopped (Ctrl-C).

    python docs/example/cluster.py

On several machines, the same two commands are given by hand: the first on one of them, the second
on each that is to work, with the address that the first prints.
"""

import argparse
import signal
import subprocess
import sys

PROGRAM = [sys.executable, "-P", "-m", "dask"]


def main():
    """Start the cluster, say where it is, and wait."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, default=8786, help="of the scheduler")
    options.add_argument("--workers", type=int, default=2, help="processes that count")
    chosen = options.parse_args()
    address = f"tcp://127.0.0.1:{chosen.port}"
    scheduler = ["scheduler", "--host", "127.0.0.1", "--port", str(chosen.port), "--no-dashboard"]
    worker = ["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes = [subprocess.Popen([*PROGRAM, *scheduler])]
    try:
        processes += [subprocess.Popen([*PROGRAM, *worker]) for _ in range(chosen.workers)]
        print(address, flush=True)
        processes[0].wait()
    except KeyboardInterrupt:
        pass
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    main()
