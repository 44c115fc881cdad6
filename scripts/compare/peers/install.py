"""Install the peers, each environment of environments.json in its own virtual environment.

    python -m scripts.compare.peers.install FOLDER [ENVIRONMENT ...] [--archives FOLDER]

FOLDER/<environment> gets the pinned packages of requirements-<environment>.txt, made for the
Python that the environment names, and then its sources: commits of repositories that no package
index holds, taken from NAME-COMMIT.tar.gz in the folder of archives or else from their address. An
environment that was installed from the same files already is left as it is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
STAMP = "installed-requirements.txt"


@dataclass(frozen=True)
class Environment:
    """What goes into one virtual environment.

    Attributes:
        requirements: file of pinned packages.
        python: version of the interpreter, such as "3.12"; that of this process by default.
        sources: address and commit of each repository, in the order of installation.
    """

    requirements: Path
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    sources: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Changes whenever the environment has to be made again."""
        lines = [f"# {address} {commit}\n" for address, commit in self.sources.values()]
        return "".join([f"# Python {self.python}\n", *lines, self.requirements.read_text()])


def main() -> None:
    known = environments()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the environments go")
    parser.add_argument("environment", nargs="*", help=f"of {', '.join(known)}; default all")
    parser.add_argument("--archives", type=Path, help="folder of NAME-COMMIT.tar.gz")
    arguments = parser.parse_args()
    wanted = arguments.environment or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"no environment {unknown[0]!r}: choose from {', '.join(known)}")
    for name in wanted:
        install(arguments.folder / name, known[name], arguments.archives)


def environments() -> dict[str, Environment]:
    """What environments.json describes, by name."""
    described = json.loads((HERE / "environments.json").read_text())
    return {
        name: Environment(
            HERE / f"requirements-{name}.txt",
            one["python"],
            {of: (address, commit) for of, (address, commit) in one.get("sources", {}).items()},
        )
        for name, one in sorted(described.items())
    }


def install(target: Path, environment: Environment, archives: Path | None = None) -> None:
    """Make the environment unless its stamp says that all of it is there."""
    stamp = target / STAMP
    if stamp.is_file() and stamp.read_text() == environment.stamp:
        print(f"{target}: there already")
        return
    print(f"{target}: installing {environment.requirements.name}")
    create(target, environment.python)
    run_pip(target, "--requirement", str(environment.requirements))
    for name, (address, commit) in environment.sources.items():
        archive = archives and archives / f"{name}-{commit}.tar.gz"
        found = archive and archive.is_file()
        run_pip(
            target, "--no-deps", str(archive) if found else f"{address}/archive/{commit}.tar.gz"
        )
    stamp.write_text(environment.stamp)


def create(target: Path, version: str) -> None:
    """A new virtual environment of a Python of this version."""
    if version == Environment.python:
        venv.create(target, with_pip=True, clear=True)
        return
    python = shutil.which(f"python{version}")
    if python is None:
        sys.exit(f"error: {target}: no python{version} on the PATH: install it, or leave this out")
    subprocess.run([python, "-m", "venv", "--clear", str(target)], check=True)


def run_pip(target: Path, *wanted: str) -> None:
    """Install into an environment, or end."""
    command = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
    if subprocess.run(command).returncode:
        sys.exit(f"error: {target}: pip failed (its lines are above): mend the cause, run again")


if __name__ == "__main__":
    main()
