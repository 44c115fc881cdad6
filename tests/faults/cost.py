"""What the ledger and exact noise cost of the time of `synthesize` on Adult."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from adaptive_qs.cli.entry import main
from adaptive_qs.ledger import files
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.run import LedgerRun
from adaptive_qs.run.states import SpendingRun
from adaptive_qs.table.files import sample_dataset

STEPS = (
    (LedgerBook, "__init__"),
    (files, "keyed_hash"),
    (LedgerBook, "reserve"),
    (SpendingRun, "finish"),
)
"""Steps of a run on a ledger besides its releases."""


def cost(folder: Path, epsilon: float = 1.0, warm: bool = True) -> dict[str, float]:
    """Run `synthesize` with a ledger and time it."""
    adult = sample_dataset()
    ledger = str(folder / "ledger")
    _run(["ledger", "create", "--ledger", ledger, "--epsilon", str(4 * epsilon)])
    command = [
        "synthesize", str(adult.data), "--schema", str(adult.schema), "--epsilon", str(epsilon),
        "--ledger", ledger, "--out", str(folder / "o.csv"), "--release", str(folder / "r.zip"),
        "--force",
    ]  # fmt: skip
    if warm:
        _run(command)
    spent: Counter[str] = Counter()
    start = time.perf_counter()
    with ExitStack() as stack:
        for owner, step in STEPS:
            stack.enter_context(patch.object(owner, step, _timed(owner, step, spent)))
        stack.enter_context(patch.object(LedgerRun, "release", _timed_release(spent)))
        _run(command)
    total = time.perf_counter() - start
    hashing, noise = spent["keyed_hash"], spent["noise"]
    parts = spent["release"] + sum(spent[step] for _, step in STEPS)
    return {
        "total": total,
        "noise": noise,
        "hashing": hashing,
        "ledger": parts - noise - hashing,
        "releases": spent["releases"],
        "share": parts / total,
    }


def _run(command: Sequence[str]) -> None:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        assert main(command) == 0


def _timed(owner: Any, name: str, spent: Counter[str]) -> Callable[..., Any]:
    function = getattr(owner, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spent[name] += time.perf_counter() - start

    return timed


def _timed_release(spent: Counter[str]) -> Callable[..., Any]:
    release = _timed(LedgerRun, "release", spent)

    def timed(run: LedgerRun, events: Any, draw: Callable[[], Any], definition: str = "") -> Any:
        def timed_draw() -> Any:
            start = time.perf_counter()
            try:
                return draw()
            finally:
                spent["noise"] += time.perf_counter() - start

        spent["releases"] += 1
        return release(run, events, timed_draw, definition)

    return timed
