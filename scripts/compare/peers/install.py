"""Install the peers, each environment of peers.json in its own virtual environment.

    python -m scripts.compare.peers.install FOLDER [ENVIRONMENT ...]

FOLDER/<environment> gets the pinned packages of requirements-<environment>.txt, made for Python
3.11. An environment that was installed from the same file already is left as it is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
STAMP = "installed-requirements.txt"


def main() -> None:
    known = environments()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the environments go")
    parser.add_argument("environment", nargs="*", help=f"of {', '.join(known)}; default all")
    arguments = parser.parse_args()
    wanted = arguments.environment or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"no environment {unknown[0]!r}: choose from {', '.join(known)}")
    for name in wanted:
        install(arguments.folder / name, HERE / f"requirements-{name}.txt")


def environments() -> list[str]:
    """Names of the environments that peers.json uses."""
    peers = json.loads((HERE / "peers.json").read_text())
    return sorted({peer["environment"] for peer in peers.values()})


def install(target: Path, requirements: Path) -> None:
    """Make the environment unless its stamp says that these requirements are in it."""
    stamp = target / STAMP
    if stamp.is_file() and stamp.read_text() == requirements.read_text():
        print(f"{target}: there already")
        return
    print(f"{target}: installing {requirements.name}")
    venv.create(target, with_pip=True, clear=True)
    command = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*command, "--requirement", str(requirements)])
    if done.returncode:
        sys.exit(f"error: {target}: pip failed (its lines are above): mend the cause, run again")
    stamp.write_text(requirements.read_text())


if __name__ == "__main__":
    main()
