"""Input and output of commands: standard streams, files and signals."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_qs.errors import AdaptiveQsError, SpentNote
from adaptive_qs.machine import PhaseClock, peak_memory_mb
from adaptive_qs.pages.words import PHASES, counted, join_first
from adaptive_qs.pages.words import share as part_in_words

if TYPE_CHECKING:
    from adaptive_qs.evaluation.checks import Finding
    from adaptive_qs.privacy.events import Cost
    from adaptive_qs.privacy.unit import Unit
    from adaptive_qs.release.release import Release
    from adaptive_qs.run.states import CheckedRun, FinishedRun

PROGRAM = "adaptive-qs"

# Python drops exceptions that are raised inside some callbacks of compiled code. A signal is
# therefore also stored, and raised again at the next report of progress.

_requests: list[int] = []


class Stopped(BaseException):
    """A signal that stops the command."""

    def __init__(self, number: int) -> None:
        """Remember the number of the signal."""
        self.exit_code = 128 + number


def request(number: int) -> None:
    """Store the signal and raise :class:`Stopped`."""
    _requests.append(number)
    raise Stopped(number)


def check() -> None:
    """Raise :class:`Stopped` again if a signal came since :func:`forget`."""
    if _requests:
        raise Stopped(_requests[0])


def received_signal() -> int | None:
    """Return the signal that came since :func:`forget`, if any."""
    return _requests[0] if _requests else None


def forget() -> None:
    """Clear the stored signals at the start of a command."""
    _requests.clear()


# Results on stdout; all else on stderr.

Row = tuple[str, str]
PLAIN_WIDTH = 160
"""Width of text (characters) if stdout is not a terminal."""


def figure(number: float) -> str:
    """Format a number with four digits, such as "6.965" or "12,340"."""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.4g}"


def percent(share: float) -> str:
    """Format a share to about three digits, such as "12.3 %", or "under 0.001 %" if not 0."""
    return part_in_words(share).replace("\u00a0", " ")


def excess(part: float) -> str:
    """Format a relative excess with two digits; above 1,000 % as a factor."""
    return f"{100 * part:.2g} %" if part < 10 else f"a factor of {1 + part:,.0f}"


class PipeClosed(BaseException):
    """The reader of stdout closed the pipe."""


def emit(text: str) -> None:
    """Write text to stdout; raise :class:`PipeClosed` if the reader has closed it."""
    encoding = sys.stdout.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise PipeClosed from None
    except OSError as error:
        said = f"stdout cannot be written ({error.strerror}): output files are complete"
        raise AdaptiveQsError(said) from None


def emit_json(content: Mapping[str, Any]) -> None:
    """Write a result as one JSON object."""
    emit(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def pick(source: Any, *names: str) -> dict[str, Any]:
    """Return attributes of an object by name, as fields of a JSON object."""
    return {name: getattr(source, name) for name in names}


def emit_rows(title: str, rows: Sequence[Row]) -> None:
    """Write a title, then names and values."""
    from rich.text import Text

    width = max(len(name) for name, _ in rows)
    lines = [Text(title, style="bold")]
    for name, value in rows:
        line = Text.assemble(f"  {name:<{width}}  ", printable(value))
        line.stylize("bold", 0, width + 2)
        lines.append(line)
    _emit_rich(*lines, soft_wrap=True)


def emit_columns(
    names: Sequence[str], rows: Sequence[Sequence[str]], figures: bool = False
) -> None:
    """Write a table with numbers in the last column, with ``figures`` in any, right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=True)
    for k, name in enumerate(names):
        last = k + 1 == len(names)
        numbers = k > 0 and all(row[k].lstrip("+-")[:1].isdigit() for row in rows)
        right = last if figures and last else numbers and (figures or last)
        table.add_column(Text(name), overflow="fold", justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _emit_rich(table)


def show_figures(findings: Iterable[tuple[str, Finding]]) -> None:
    """Print the facts and the tables of findings."""
    from adaptive_qs.evaluation.evaluation import text_parts

    for title, rows, tables in text_parts(findings):
        emit_rows(title, rows) if rows else emit(title)
        for heads, cells in tables:
            emit_columns(heads, cells, figures=True)


def _emit_rich(*parts: Any, soft_wrap: bool = False) -> None:
    console = _console(error=False, file=StringIO())
    for part in parts:
        console.print(part, soft_wrap=soft_wrap)
    emit(console.file.getvalue())


def taken_rows(seconds: Mapping[str, float]) -> list[Row]:
    """Return rows with the time and memory of a command."""
    rows = [("seconds", ", ".join(f"{phase} {spent:.1f}" for phase, spent in seconds.items()))]
    return [*rows, ("peak memory", f"{peak_memory_mb():,.0f} MB")]


def taken_json(seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return the JSON fields with the time and memory of a command."""
    rounded = {phase: round(spent, 3) for phase, spent in seconds.items()}
    return {"seconds": rounded, "peak_memory_mb": round(peak_memory_mb(), 1)}


def closed_rows(closed: FinishedRun | None) -> list[Row]:
    """Return a row with the ledger, the run and the remaining budget; none without a ledger."""
    if closed is None:
        return []
    left = f"{format_rho(closed.left, left=True)} left"
    return [("ledger", f"{closed.path}: run {closed.run} is finished; {left}")]


def closed_json(closed: FinishedRun | None) -> dict[str, Any] | None:
    """Return the JSON fields of a finished run; None without a ledger."""
    if closed is None:
        return None
    rho_left = float(closed.left.rho)
    return {
        "path": str(closed.path), "run": closed.run, "rho_left": rho_left, "head": closed.head,
    }  # fmt: skip


def stamp_rows(insecure: bool, stamp: str) -> list[Row]:
    """Return a row that says why an output is not private, if it is not."""
    return [("NOT PRIVATE", stamp.partition(": ")[2])] if insecure else []


def unconnected_warnings(release: Release) -> list[str]:
    """Return a warning about the columns without a measured combination, if there are any."""
    if not (names := release.manifest.unconnected):
        return []
    verb, all_columns = "is" if len(names) == 1 else "are", len(release.schema.columns)
    some = f"{len(names):,} of {counted(all_columns, 'column')} {verb} independent of all others"
    remedy = "it foresees, without data, which columns stay independent"
    remedy = f"Run adaptive-qs plan with twice the budget: {remedy}"
    return [f"At this budget {some}: {join_first(names, 6)}. {remedy}."]


def protects(unit: Unit) -> Row:
    """Return a row with the unit of privacy and the neighbouring tables."""
    return "protects", f"{unit.name}; neighbouring tables {unit.relation}"


def format_rho(cost: Cost, left: bool = False) -> str:
    """Format a cost in zCDP; with ``left``, a remaining budget that is rounded down."""
    from adaptive_qs.ledger.entries import round_down
    from adaptive_qs.privacy.events import zcdp_name

    rho = round_down(float(cost.rho)) if left else f"{float(cost.rho):.6g}"
    return f"rho {rho} ({zcdp_name(float(cost.delta))})"


def note(text: str) -> None:
    """Print a note on stderr."""
    _line("note: ", text, "dim")


def warn(text: str) -> None:
    """Print a warning on stderr."""
    _line("warning: ", text, "bold yellow")


def fail(text: str) -> None:
    """Print the reason of a failure on stderr."""
    _line("error: ", text, "bold red")


@contextmanager
def progress_bars() -> Iterator[PhaseClock]:
    """Yield a clock of phases, with a bar on stderr if it is a terminal.

    Each report also stops the command if a signal came.
    """
    if not sys.stderr.isatty():
        yield PhaseClock(lambda phase, done, total: check())
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    )  # fmt: skip
    with Bars(*columns, console=_console(error=True), transient=True) as bars:
        bar = bars.add_task("starting", total=None)

        def report(phase: str, done: int, total: int) -> None:
            check()
            if (name := PHASES.get(phase, phase)) != bars.tasks[0].description:
                bars.reset(bar, total=total, description=name)
            bars.update(bar, completed=done, total=total)

        yield PhaseClock(report)


def conclude(as_json: bool, content: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write the result of a command: as JSON, or as names and values."""
    emit_json(content) if as_json else emit_rows("Done.", rows)


def printable(text: str) -> str:
    """Replace control characters, which names of files and columns can contain."""
    return "".join(c if c.isprintable() else "?" for c in text.replace("\u00a0", " "))


def _line(prefix: str, text: str, style: str) -> None:
    text = printable(" ".join(text.split()))
    if not sys.stderr.isatty():
        with suppress(OSError):  # a full disk under a log is no reason to stop
            sys.stderr.write(f"{prefix}{text}\n")
            sys.stderr.flush()
        return
    from rich.text import Text

    line = Text.assemble((prefix, style), text if prefix else (text, style))
    _console(error=True).print(line, soft_wrap=True)


def _console(error: bool, file: StringIO | None = None) -> Any:
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=file or stream, force_terminal=terminal, highlight=False, emoji=False,
        width=None if terminal else PLAIN_WIDTH,
    )  # fmt: skip


# Files, checked before anything is spent.

at_end = ExitStack()
"""Resources that are closed when a command ends: claims on outputs, and ledgers."""


def show_warnings(checked: CheckedRun[Any], schema: Path) -> None:
    """Write the warnings of a run before anything is spent."""
    from adaptive_qs.table.schema import UNREVIEWED, is_unreviewed

    for warning in checked.warnings:
        warn(warning)
    if checked.options.insecure:
        warn(
            "--insecure-seed: anyone who knows the seed can remove the noise. The output is NOT "
            "PRIVATE."
        )
    if is_unreviewed(checked.root.schema):
        warn(f"{schema}: {UNREVIEWED}")


# What the budget bought, for the message of a command that failed after spending it.


@contextmanager
def receipt(kept: Callable[[], SpentNote | None]) -> Iterator[dict[str, Path]]:
    """Add to any error what the budget bought: the block notes its "release" and its "table" here.

    ``kept`` returns the note that a ledger holds what was paid for, while one does.
    """
    files: dict[str, Path] = {}
    try:
        yield files
    except BaseException as error:
        held = kept()
        what = held or "no release was kept (--release FILE keeps one before the table is fitted)"
        if "release" in files:
            what = f"the release is in {files['release']}: sample a table from it free of charge"
            what += f"; {held}" if held else ""
        table = f"the table is in {files['table']}; " if "table" in files else ""
        error.add_note(SpentNote(f"the budget is spent; {table}{what}"))
        raise


def spent(error: BaseException) -> str:
    """Return the notes of an error about the spent budget; empty if none was spent."""
    notes = getattr(error, "__notes__", ())
    return "; ".join(note for note in notes if isinstance(note, SpentNote))
