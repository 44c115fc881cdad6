"""`ledger`: the budget of a data set over all runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_qs.cli import options
from adaptive_qs.cli.artefacts import check_distinct, check_file, companions
from adaptive_qs.cli.ledger_summary import cost_words, ledger_json, ledger_lines, run_columns
from adaptive_qs.cli.output import counted, emit, emit_columns, emit_json, emit_rows, warn
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.ledger.book import LedgerBook

ledger_app = typer.Typer(
    help="Count the budget of a data set over all runs: set its total, show, verify, export.",
    no_args_is_help=True,
)

LedgerFile = Annotated[
    Path | None, typer.Option("--ledger", metavar="FILE", help="The data set's ledger; needed.")
]
DiscoveryDelta = Annotated[
    float,
    typer.Option(
        "--discovery-delta",
        metavar="D",
        help="Part of delta set aside for runs that discover the values of columns. (Default: 0.)",
        show_default=False,
    ),
]
TotalEpsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        metavar="E",
        help="Privacy loss of all runs together; give it or --rho.",
        show_default=False,
    ),
]
TotalRho = Annotated[
    float | None,
    typer.Option(
        "--rho", metavar="R", help="The total in zCDP, instead of --epsilon.", show_default=False
    ),
]
RunNumber = Annotated[
    int | None, typer.Option("--run", metavar="N", min=1, max=2**62, help="Number of the run.")
]
Bundle = Annotated[
    Path | None,
    typer.Option(
        "--release",
        metavar="FILE",
        help="A release bundle, or the .manifest.json beside a table: check also that it stands in "
        "this ledger.",
    ),
]


@ledger_app.command("create")
def create(
    ledger: LedgerFile = None,
    epsilon: TotalEpsilon = None,
    delta: options.Delta = None,
    rho: TotalRho = None,
    discovery_delta: DiscoveryDelta = 0.0,
    public_rows: options.PublicRows = None,
    beyond_limits: options.BeyondLimits = False,
) -> None:
    """Make a ledger with the total that all runs on a data set may spend together.

    The total is set once. A secret key, by which a resumed run recognises its table, will lie
    beside the ledger in FILE.key.
    """
    path = _named(ledger)
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.total import Total
    from adaptive_qs.privacy.guard_rails import check_public_rows, check_rails

    check_public_rows(public_rows, "--public-rows")
    total = Total.of(epsilon, delta, rho, discovery_delta)
    for doubt in check_rails(total.rails(public_rows), beyond_limits):
        warn(doubt)
    book = LedgerBook.create(path, total.limit, total.declared)
    emit(f"{path}: {cost_words(book, book.limit)} for all runs together")


@ledger_app.command("show")
def show(ledger: LedgerFile = None, as_json: options.Json = False) -> None:
    """Show the total, what is left, and what each run spent."""
    from adaptive_qs.ledger.book import LedgerBook

    book = LedgerBook(_named(ledger))
    runs = book.runs()
    if as_json:
        emit_json(ledger_json(book, runs))
        return
    emit_rows(str(book.path), ledger_lines(book, runs))
    if runs:
        emit_columns(
            ["run", "command", "state", "releases", "started", "rho spent", "rho reserved"],
            [run_columns(run) for run in runs],
        )


@ledger_app.command("verify")
def verify(
    ledger: LedgerFile = None, release: Bundle = None, as_json: options.Json = False
) -> None:
    """Check every entry: the hashes, the costs from what was run, the sums, the kept answers."""
    from adaptive_qs.ledger.book import LedgerBook

    book = LedgerBook(_named(ledger))
    entries = book.verify()
    if release is not None:
        _check_release(book, release)
    if as_json:
        emit_json({"ledger": book.identity, "entries": entries, "sound": True})
    else:
        placed = "" if release is None else f"; {release} stands in it"
        emit(f"{book.path}: {counted(entries, 'entry', 'entries')}, all sound{placed}")


@ledger_app.command("export")
def export(
    ledger: LedgerFile = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write, as JSON.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write all entries as JSON, for auditors: without the key and the noisy answers."""
    from adaptive_qs.data.files import atomic_writer
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.export import exported

    path = _named(ledger)
    if out is not None:
        check_distinct([out], companions(path))
        check_file(out, force)
    text = exported(LedgerBook(path))
    if out is None:
        emit(text)
        return
    with atomic_writer(out) as file:
        file.write(text.encode())
    emit(f"{out}: written")


@ledger_app.command("close")
def close(ledger: LedgerFile = None, run: RunNumber = None) -> None:
    """Give up an interrupted run: what it has not spent may be spent by others.

    Its noisy answers are forgotten, and it cannot be resumed.
    """
    from adaptive_qs.ledger.book import LedgerBook

    path = _named(ledger)
    if run is None:
        raise InputError("no --run was given: adaptive-qs ledger show lists the runs")
    book = LedgerBook(path)
    book.close_run(run)
    emit(f"{path}: run {run} is closed; {cost_words(book, book.limit - book.held)} left")


def _named(ledger: Path | None) -> Path:
    if ledger is None:
        raise InputError("no --ledger was given: name the file of the ledger")
    return ledger


def _check_release(book: LedgerBook, path: Path) -> None:
    from adaptive_qs.privacy.budget import Place
    from adaptive_qs.release.beside import read_place

    place = read_place(path)
    if place is None:
        raise InputError(f"{path}: was made without a ledger: nothing to compare")
    if not book.has(Place(**place.model_dump())):
        raise InputError(
            f"{path}: is not in this ledger as it says: it belongs to another ledger, or the "
            "ledger was changed after it"
        )
