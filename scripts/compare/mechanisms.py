"""The mechanisms by name: what each is, and how its process is started."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scripts.compare import Complaint

PEER_SCRIPTS = Path(__file__).resolve().parent / "peers"

Kind = Literal["ours", "baseline", "answers", "floor", "peer"]

OURS = ("adaptive", "adaptive-uniform")
"""Tables and answers by adaptive measurement, the default first."""
BASELINES = ("independent",)
"""Private, but blind to every dependence."""
ANSWERS = ("residualplanner", "querysmasher")
"""Noisy answers, no table."""
FLOORS = ("bootstrap", "true-independent")
"""Made from the true rows without privacy: what sampling alone, or independence alone, costs."""


SETTINGS: dict[str, frozenset[str]] = {"adaptive": frozenset({"levels", "max_memory"})}
"""Settings that a grid may change, by mechanism; all others run with their recommended ones."""


@dataclass(frozen=True)
class Mechanism:
    """How to run a mechanism.

    Attributes:
        kind: "ours", "baseline", "answers", "floor" or "peer".
        command: everything before the path of the job file; None where it is not installed.
        title: in digests and plots.
        missing: the environment that is not there, by name.
    """

    kind: Kind
    command: tuple[str, ...] | None
    title: str
    missing: str = ""


def all_mechanisms(environments: Path | None, scripts: Path = PEER_SCRIPTS) -> dict[str, Mechanism]:
    """Every mechanism of this project and every peer that is described.

    Args:
        environments: folder with the peers' virtual environments, one folder each.
        scripts: folder with ``peers.json`` and the peers' scripts.

    Raises:
        Complaint: the description of the peers is not valid.
    """
    worker = (sys.executable, "-m", "scripts.compare.worker")
    kinds: dict[Kind, tuple[str, ...]] = {
        "ours": OURS, "baseline": BASELINES, "answers": ANSWERS, "floor": FLOORS
    }  # fmt: skip
    known = {name: Mechanism(kind, worker, name) for kind, names in kinds.items() for name in names}
    for name, (script, environment, title) in _described(scripts).items():
        known[name] = Mechanism("peer", None, title, environment)
        python = environments and environments / environment / "bin" / "python"
        if python and os.access(python, os.X_OK):
            # Not resolved: a link to the system's Python is what makes the environment.
            command = (str(python.absolute()), str((scripts / script).resolve()))
            known[name] = Mechanism("peer", command, title)
    return known


def check_known(name: str, settings: Iterable[str], known: Mapping[str, Mechanism]) -> None:
    """Refuse a mechanism that nobody knows, and settings that it does not take.

    Raises:
        Complaint: it is unknown, or a setting is.
    """
    if name not in known:
        raise Complaint(f"mechanism {name!r} is unknown: give one of {', '.join(known)}")
    refused = sorted(set(settings) - SETTINGS.get(name, frozenset()))
    if refused:
        raise Complaint(f"mechanism {name!r} takes no setting {refused[0]!r}: take it out")


def _described(scripts: Path) -> dict[str, tuple[str, str, str]]:
    path = scripts / "peers.json"
    if not path.is_file():
        return {}
    try:
        peers = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: (one["script"], one["environment"], one.get("title", name))
            for name, one in peers.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Complaint(
            f"{path.name}: give an object of peers, each with script and environment"
        ) from None
