"""Progress bars of a run, in notebooks and terminals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any

PHASES = {
    "plan": "planning",
    "learn": "learning bins and values",
    "read": "reading the table",
    "answer": "measuring and answering",
    "loop": "measuring, part of the budget",
    "fit": "fitting the table",
    "draw": "drawing the table",
    "evaluate": "comparing marginals",
    "queries": "comparing queries",
    "pairs": "comparing pairs of columns",
    "models": "training models",
    "attack": "attacking",
    "verdict": "grading the differences",
}
"""The phases of a run, as people read them."""

_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


class ProgressBar:
    """Shows how far a run has come, as its ``progress``: ``Synthesizer(progress=ProgressBar())``.

    In a notebook one line for each phase, with a bar and the seconds that it took so far; in a
    terminal one line on stderr; anywhere else nothing. What is shown follows from the rows, as the
    time of a run does: it is for the owner.
    """

    _LEAST_SECONDS = 0.1
    """Between two updates of a phase that is not at its end."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._shown: dict[str, tuple[int, int, float]] = {}
        self._last = 0.0
        self._display: Callable[[str], None] | None = None

    def __call__(self, phase: str, done: int, total: int) -> None:
        """A report from a phase: steps done, and steps in all."""
        now = time.perf_counter()
        fresh = phase not in self._begun
        since = self._begun.setdefault(phase, now)
        self._shown[phase] = (done, total, now - since)
        if fresh or done >= total or now - self._last >= self._LEAST_SECONDS:
            self._last = now
            self._show(phase)

    def _show(self, phase: str) -> None:
        if self._display is None:
            self._display = _notebook() or _terminal()
        self._display(self.html() if self._display is not _line else self._text(phase))

    def html(self) -> str:
        """All phases so far, as a notebook shows them."""
        rows = "".join(
            f'<tr><td style="{_CELL}">{escape(PHASES.get(phase, phase))}</td>'
            f'<td style="{_CELL}"><progress max="{max(total, 1)}" value="{done}"></progress></td>'
            f'<td style="{_CELL}">{_percent(done, total)}, {seconds:.1f} s</td></tr>'
            for phase, (done, total, seconds) in self._shown.items()
        )
        return f"<table>{rows}</table>"

    def _text(self, phase: str) -> str:
        done, total, seconds = self._shown[phase]
        return f"{PHASES.get(phase, phase)}: {_percent(done, total)}, {seconds:.1f} s"


def _percent(done: int, total: int) -> str:
    return f"{100 * min(done, total) // max(total, 1)} %"


def _notebook() -> Callable[[str], None] | None:
    """What shows HTML in the place of what it showed before; None outside notebooks."""
    library: Any = sys.modules.get("IPython")
    shell = None if library is None else library.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    show: Any = import_module("IPython.display")
    handle = show.display(show.HTML(""), display_id=True)
    return lambda html: handle.update(show.HTML(html))


def _terminal() -> Callable[[str], None]:
    return _line if sys.stderr is not None and sys.stderr.isatty() else lambda text: None


def _line(text: str) -> None:
    """The line of the cursor, written again."""
    sys.stderr.write(f"\r\x1b[2K{text}")
    sys.stderr.flush()
