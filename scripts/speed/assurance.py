"""The assurance suite in its long form: every figure of the privacy promise, measured.

Each section runs in a process of its own and says what it found beside what it should. A section
that was measured is kept in ``--parts`` with its scale and its commit, so a run that was stopped
goes on; it is measured again where either differs or where code differed from its commit.
``results/assurance.json`` holds all of them.

    python -m scripts.speed.assurance                    # everything; 1.5 hours on two cores
    python -m scripts.speed.assurance --quick            # the same code in minutes, written nowhere
    python -m scripts.speed.assurance --section kills    # one of them
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.results import CODE, git_commit, write_atomically, write_results
from scripts.speed.assurance_sections import QUICK, ROOT, SECTIONS, SEED, Scale

ALONE = ("reservations", "cost")
"""Sections that time something: nothing else runs beside them."""

STARTED_FROM = git_commit((*CODE, "tests"))
"""The commit when the script began; the sections are code of the tests, too."""

Commit = Mapping[str, Any] | None
"""Hash, and whether code differs from it; None outside a repository."""


def measured(section: Callable[[Scale], dict[str, Any]], scale: Scale) -> dict[str, Any]:
    """One section, with its scale, what it took and the code that it ran on.

    A section that raises has failed, with the error instead of figures.
    """
    began = time.perf_counter()
    try:
        found = section(scale)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
        traceback.print_exc()
        found = failed(f"{type(error).__name__}: {error}")
    return {
        **found,
        "seconds": round(time.perf_counter() - began, 1),
        "scale": asdict(scale),
        "commit": STARTED_FROM,
    }


def failed(error: str) -> dict[str, Any]:
    """What stands for a section that did not come to its end."""
    return {"passed": False, "error": error}


@dataclass(frozen=True)
class Parts:
    """Sections that were measured, each in a file.

    Attributes:
        folder: of the files.
        scale: asked for now.
        commit: of the code now.
        accept_older: use sections of other commits, too.
    """

    folder: Path
    scale: Scale
    commit: Commit
    accept_older: bool = False

    def file(self, name: str) -> Path:
        """Where a section is kept."""
        return self.folder / f"{name}.json"

    def kept(self, name: str) -> dict[str, Any] | None:
        """A section that need not be measured again; None if it must be.

        A section is used for its own scale only, and never where it ended in an error or where
        code differed from the commit that it names.
        """
        path = self.file(name)
        found = json.loads(path.read_text()) if path.exists() else {}
        if found.get("scale") != asdict(self.scale) or "error" in found:
            return None
        if not _clean(found["commit"]):
            return None
        same = _clean(self.commit) and found["commit"]["hash"] == self.commit["hash"]
        return found if same or self.accept_older else None

    def section(self, name: str, measure: Callable[[str, Path], int]) -> dict[str, Any]:
        """A section, measured unless it is kept.

        Args:
            name: of the section.
            measure: writes the section of this name to this file, and returns an exit code.

        Returns:
            What was found; "other_commit" says whether its commit is not that of the code now.
        """
        found = self.kept(name)
        if found is None:
            fresh = self.folder / f"{name}.new"
            fresh.unlink(missing_ok=True)
            code = measure(name, fresh)
            if fresh.exists():
                fresh.replace(self.file(name))
                found = json.loads(self.file(name).read_text())
            else:
                found = failed(f"its process ended with code {code} and no figures")
                found |= {"scale": asdict(self.scale), "commit": self.commit}
        return {**found, "other_commit": found["commit"] != self.commit}

    def sections(
        self, names: Iterable[str], jobs: int, measure: Callable[[str, Path], int]
    ) -> dict[str, dict[str, Any]]:
        """All of these sections, told as they end; those that time something run alone."""

        def told(name: str) -> dict[str, Any]:
            found = self.section(name, measure)
            print(summary(name, found), flush=True)
            return found

        together = [name for name in names if name not in ALONE]
        with ThreadPoolExecutor(jobs) as pool:
            found = dict(zip(together, pool.map(told, together)))
        return found | {name: told(name) for name in names if name in ALONE}


def _clean(commit: Commit) -> bool:
    return commit is not None and not commit["dirty"]


def summary(name: str, found: Mapping[str, Any]) -> str:
    """One line about a section."""
    words = "passed" if found["passed"] else f"FAILED {found.get('error', '')}".rstrip()
    commit = found["commit"] or {"hash": "unknown"}
    other = f", measured on commit {commit['hash'][:12]}" if found["other_commit"] else ""
    return f"{name}: {words} ({found.get('seconds', 0):g} s{other})"


def main() -> int:
    """Run what the command line asks for; 0 where all of it passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    parser.add_argument("--section", choices=SECTIONS, help="only this one, printed")
    parser.add_argument("--out", type=Path, help="where --section writes instead")
    parser.add_argument("--parts", type=Path, help="folder of measured sections, to go on from")
    parser.add_argument(
        "--accept-older", action="store_true", help="go on from parts of other commits, too"
    )
    parser.add_argument("--jobs", type=int, default=2, help="sections at once")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else Scale()
    if arguments.section:
        found = measured(SECTIONS[arguments.section], scale)
        text = json.dumps(found, indent=2, default=str) + "\n"
        if arguments.out:
            write_atomically(arguments.out, text)
        else:
            print(text, end="")
        return 0 if found["passed"] else 1

    def measure(name: str, out: Path) -> int:
        command = [sys.executable, "-m", "scripts.speed.assurance", "--section", name]
        quick = ["--quick"] if arguments.quick else []
        return subprocess.run([*command, "--out", str(out.resolve()), *quick], cwd=ROOT).returncode

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.parts or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        parts = Parts(folder, scale, STARTED_FROM, arguments.accept_older)
        found = parts.sections(SECTIONS, arguments.jobs, measure)
    if not arguments.quick:
        path = write_results("assurance", found, asdict(scale), [SEED])
        print(path.relative_to(ROOT))
    return 0 if all(section["passed"] for section in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
