"""Results on stdout; progress, notes, warnings and errors on stderr; signals."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import StringIO
from typing import Any

from adaptive_qs.errors import AdaptiveQsError
from adaptive_qs.machine import PhaseProgress
from adaptive_qs.pages.words import counted as counted
from adaptive_qs.pages.words import share as part_in_words

# A signal that asks the command to stop, even where the exception it raised got lost.
#
# Python drops exceptions that reach it inside some callbacks of compiled code. So a request is also
# remembered, and raised again at the next report of progress.

_requests: list[int] = []


class Stopped(BaseException):
    """A signal asked the command to stop."""

    def __init__(self, number: int) -> None:
        """Remember the number of the signal."""
        self.exit_code = 128 + number


def request(number: int) -> None:
    """Remember the signal and raise.

    Raises:
        Stopped: always.
    """
    _requests.append(number)
    raise Stopped(number)


def check() -> None:
    """Raise again what was asked for.

    Raises:
        Stopped: a signal came since :func:`forget`.
    """
    if _requests:
        raise Stopped(_requests[0])


def forget() -> None:
    """Begin a new command."""
    _requests.clear()


# Results on stdout; progress, notes, warnings and errors on stderr.

Row = tuple[str, str]

PLAIN_WIDTH = 160
"""Columns of text where stdout is no terminal."""

_PHASES = {
    "plan": "planning",
    "learn": "learning bins and values",
    "read": "reading the table",
    "answer": "measuring and answering",
    "loop": "measuring, part of the budget",
    "fit": "fitting the table",
    "refine": "refining the table",
    "evaluate": "comparing marginals",
    "queries": "comparing queries",
    "pairs": "comparing pairs of columns",
    "models": "training models",
    "attack": "attacking",
    "verdict": "grading the differences",
}


def figure(number: float) -> str:
    """A number to four digits, such as "6.965" or "12,340"."""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.4g}"


def percent(share: float) -> str:
    """About three digits, such as "12.3 %", and "under 0.001 %" for less: never 0 for what is
    not."""
    return part_in_words(share).replace("\u00a0", " ")


def excess(part: float) -> str:
    """How far something is above something else, to two digits; a factor where it is far."""
    return f"{100 * part:.2g} %" if part < 10 else f"a factor of {1 + part:,.0f}"


class PipeClosed(BaseException):
    """Whoever read stdout has gone."""


def emit(text: str) -> None:
    """A result, as it is.

    Raises:
        PipeClosed: nobody reads it.
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise PipeClosed from None
    except OSError as error:
        raise AdaptiveQsError(
            f"stdout cannot be written ({error.strerror}): output files are complete"
        ) from None


def emit_json(content: Mapping[str, Any]) -> None:
    """A result as one JSON object."""
    emit(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def emit_rows(title: str, rows: Sequence[Row]) -> None:
    """A result for people: a title, then names and values."""
    from rich.text import Text

    width = max(len(name) for name, _ in rows)
    lines = [Text(title, style="bold")]
    for name, value in rows:
        line = Text.assemble(f"  {name:<{width}}  ", _printable(value))
        line.stylize("bold", 0, width + 2)
        lines.append(line)
    _emit_rich(*lines, soft_wrap=True)


def emit_columns(
    names: Sequence[str], rows: Sequence[Sequence[str]], figures: bool = False
) -> None:
    """A result for people: a table whose last column holds numbers; of figures, others do too."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=True)
    for k, name in enumerate(names):
        numbers = figures and k > 0 and all(_is_number(row[k]) for row in rows)
        right = numbers or k + 1 == len(names)
        table.add_column(Text(name), overflow="fold", justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(_printable(cell)) for cell in row))
    _emit_rich(table)


emit_figures = partial(emit_columns, figures=True)


def _emit_rich(*parts: Any, soft_wrap: bool = False) -> None:
    console = _console(error=False, file=StringIO())
    for part in parts:
        console.print(part, soft_wrap=soft_wrap)
    emit(console.file.getvalue())


def _is_number(text: str) -> bool:
    return text.lstrip("+-")[:1].isdigit()


def note(text: str) -> None:
    """Something worth knowing."""
    _line("", text, "dim")


def warn(text: str) -> None:
    """Something that the user may not have meant."""
    _line("warning: ", text, "bold yellow")


def fail(text: str) -> None:
    """Why the command failed."""
    _line("error: ", text, "bold red")


@contextmanager
def progress_bars() -> Iterator[PhaseProgress]:
    """Bars on stderr, one for each phase; silent where stderr is no terminal.

    Every report also stops the command where a signal has asked for it.
    """
    if not sys.stderr.isatty():
        yield lambda phase, done, total: check()
        return
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    )  # fmt: skip
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=_console(error=True), transient=True) as bars:

        def report(phase: str, done: int, total: int) -> None:
            check()
            if phase not in tasks:
                for earlier in tasks.values():
                    bars.update(earlier, visible=False)
                tasks[phase] = bars.add_task(_PHASES.get(phase, phase), total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield report


def _printable(text: str) -> str:
    """Without control characters, which names of files and columns may have."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _line(prefix: str, text: str, style: str) -> None:
    """One line without control characters: it may quote names of files and columns."""
    text = _printable(" ".join(text.split()))
    if not sys.stderr.isatty():
        with suppress(OSError):  # a full disk under a log is no reason to stop
            sys.stderr.write(f"{prefix}{text}\n")
            sys.stderr.flush()
        return
    from rich.text import Text

    line = Text.assemble((prefix, style), text if prefix else (text, style))
    _console(error=True).print(line, soft_wrap=True)


def _console(error: bool, file: StringIO | None = None) -> Any:
    """A console for a stream, or for text that will go there."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=file or stream,
        force_terminal=terminal,
        highlight=False,
        emoji=False,
        width=None if terminal else PLAIN_WIDTH,
    )
