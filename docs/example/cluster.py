"""A Dask cluster on this machine: a scheduler and two workers, until it is stopped (Ctrl-C).

    python docs/example/cluster.py

It makes a key, and settings of Dask (as in ``dask.yaml``) that name it; programs that use the
cluster need both. On several machines, the same commands are given by hand.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from distributed import Security

PROGRAM = [sys.executable, "-P", "-m", "dask"]
LOOPBACK = ["--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]


def write_settings(folder):
    """Write a key that only this user can read, its certificate, and settings that name them.

    Returns:
        The path of the settings.
    """
    security = Security.temporary()
    template = Path(__file__).with_name("dask.yaml").read_text()
    texts = {
        "key.pem": security.tls_scheduler_key,
        "certificate.pem": security.tls_scheduler_cert,
        "dask.yaml": template.replace("/cluster/", f"{folder}/"),
    }
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).unlink(missing_ok=True)
        with os.fdopen(
            os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write(text)
    return folder / "dask.yaml"


def main():
    """Start the cluster, say where it is, and wait."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, default=8786, help="of the scheduler")
    options.add_argument("--workers", type=int, default=2, help="processes that count")
    options.add_argument("--folder", type=Path, default="cluster", help="for key and settings")
    chosen = options.parse_args()
    settings = write_settings(chosen.folder.absolute())
    environment = {**os.environ, "DASK_CONFIG": str(settings)}
    address = f"tls://127.0.0.1:{chosen.port}"
    scheduler = ["scheduler", *LOOPBACK, "--port", str(chosen.port), "--protocol", "tls"]
    worker = ["worker", address, *LOOPBACK, "--protocol", "tls", "--nthreads", "1", "--no-nanny"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    processes = [subprocess.Popen([*PROGRAM, *scheduler], env=environment)]
    try:
        for _ in range(chosen.workers):
            processes.append(subprocess.Popen([*PROGRAM, *worker], env=environment))
        print(f"DASK_CONFIG={settings}\n{address}", flush=True)
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
