"""`ledger`: the budget of a data set over all runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adaptive_qs import arguments
from adaptive_qs.cli import io
from adaptive_qs.cli import options as common
from adaptive_qs.cli.options import ForceOptions, JsonOptions, check_distinct, companions
from adaptive_qs.errors import InputError
from adaptive_qs.pages.words import counted
from adaptive_qs.run.options import (
    BUDGET,
    OUTPUT,
    LimitOptions,
    MemoryOptions,
    NeighbourOptions,
    Option,
    PromiseOptions,
    PublicRows,
)  # fmt: skip

if TYPE_CHECKING:
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.entries import Restored
    from adaptive_qs.ledger.run import RunState
    from adaptive_qs.privacy.budget import PrivacyLoss
    from adaptive_qs.privacy.events import Cost
    from adaptive_qs.privacy.unit import Unit

HELP = "Count the budget of a data set over all runs: set its total, show, verify, export, restore."
STATE = (
    "State what was released since the copy was made: --release for each file, --rho for other "
    "costs, or --none."
)


def _list_rows(book: LedgerBook, runs: list[RunState]) -> list[io.Row]:
    rows = [
        ("total", _format_cost(book, book.limit)),
        ("counted", _format_cost(book, book.held, promise=_find_promise(book, runs))),
        ("left", _format_cost(book, book.left, left=True)),
        ("protects", f"{book.protected}; neighbouring tables {book.relation}"),
        ("head", book.head),
        *(("restored", _describe_restored(book, entry)) for entry in book.restorations()),
    ]
    still = ", ".join(str(run.number) for run in runs if run.state == "open")
    states = {
        "LOCKED": book.locked and "adaptive-qs ledger restore unlocks it",
        "EXCEEDED": book.exceeds(runs)
        and "more was released than the total allows: its promise is broken",
        "open": still and f"run {still} is running or was interrupted (continue it with --resume)",
        "NOT PRIVATE": any(run.insecure for run in runs)
        and "some runs drew their noise from a seed",
    }
    return [
        *rows,
        *((name, text) for name, text in states.items() if isinstance(text, str) and text),
    ]


def _list_runs(runs: list[RunState]) -> list[tuple[str, ...]]:
    return [
        (
            str(run.number), run.request.get("command", "?"),
            f"{run.state}, NOT PRIVATE" if run.insecure else run.state,
            f"{run.releases:,}", run.started[:16].replace("T", " "),
            f"{float(run.spent.rho):.6g}",
            f"{float(run.reserved.rho):.6g}" if run.state == "open" else "",
        )
        for run in runs
    ]  # fmt: skip


def _describe_restored(book: LedgerBook, entry: Restored) -> str:
    if not entry.confirmed:
        return "a copy was restored; what was released since was not stated"
    found = [counted(len(entry.releases), "lost release")]
    if entry.stated.rho_units or entry.stated.delta_units:
        found.append(f"{io.format_rho(entry.stated)} as stated")
    if entry.missing:
        found.append(f"nothing else of {entry.missing:,} lost entries")
    return f"a copy was restored; counted {' and '.join(found)}, {_format_cost(book, entry.cost)}"


def _find_promise(book: LedgerBook, runs: list[RunState]) -> PrivacyLoss | None:
    """Return the (ε, δ) of the only run that counts; None if there are several or none."""
    return next((run.promise for run in runs if run.counted == book.held), None)


def _format_cost(
    book: LedgerBook, cost: Cost, left: bool = False, promise: PrivacyLoss | None = None
) -> str:
    """Format a cost in zCDP, rounded down if ``left``, and its ε at the ledger's δ."""
    words, epsilon = io.format_rho(cost, left), book.compute_epsilon(cost, promise)
    if epsilon is not None:
        words += f", epsilon {epsilon:.6g} at delta {book.declared['delta']:g}"
    if cost.delta_units:
        words += f", of which {float(cost.delta):.3g} for discovery"
    return words


def _list_fields(book: LedgerBook, runs: list[RunState]) -> dict[str, Any]:
    def fields(cost: Cost, promise: PrivacyLoss | None = None) -> dict[str, Any]:
        return {
            "rho": float(cost.rho), "rho_units": cost.rho_units,
            "discovery_delta": float(cost.delta), "epsilon": book.compute_epsilon(cost, promise),
        }  # fmt: skip

    return {
        "ledger": book.identity, "declared": dict(book.declared), "protects": book.protected,
        "neighbours": book.relation, "total": fields(book.limit),
        "counted": fields(book.held, _find_promise(book, runs)), "left": fields(book.left),
        "head": book.head, "locked": book.locked,
        "restored": [
            {
                **io.pick(entry, "confirmed", "missing"),
                "releases": [release.run for release in entry.releases],
                "counted": fields(entry.cost),
            }
            for entry in book.restorations()
        ],
        "runs": [
            {
                "run": run.number, "command": run.request.get("command"),
                **io.pick(run, "state", "releases"), "events": len(run.events),
                **io.pick(run, "started", "ended"), "seed_insecure": run.insecure,
                "reserved": fields(run.reserved, run.promise),
                "spent": fields(run.spent, run.promise), "gaussian_mu": run.gaussian_mu,
            }
            for run in runs
        ],
    }  # fmt: skip


def _as_run(name: str, value: Any) -> int:
    if (number := arguments.positive_integer(name, value)) >= 2**62:  # more than a database holds
        raise InputError(f"{name} is {number}. Use a number that adaptive-qs ledger show lists.")
    return number


def _as_delta(name: str, value: Any) -> float:
    if (number := arguments.as_number(value)) is None or not 0 <= number < 1:
        raise InputError(f"{name} is {arguments.shown(value)}. Use a number from 0 to 1.")
    return number


@dataclass(kw_only=True)
class LedgerOptions:
    """The ledger."""

    ledger: Annotated[Path | None, Option("The data set's ledger. Required.", "FILE")] = None

    @property
    def path(self) -> Path:
        """The file of the ledger; InputError if it was not given."""
        if self.ledger is None:
            raise InputError("No ledger is set. Use --ledger FILE.")
        return self.ledger

    def open_book(self, restoring: bool = False, reading: bool = False) -> LedgerBook:
        """Open it, until the command ends."""
        from adaptive_qs.ledger.book import LedgerBook

        book = LedgerBook(self.path, getattr(self, "anchor", None), restoring, reading)
        io.at_end.callback(book.close)
        return book


@dataclass(kw_only=True)
class AnchoredOptions(LedgerOptions):
    """The ledger, and how far it must have come."""

    anchor: Annotated[str | None, Option(
        "Minimum state of the ledger, to detect old copies: a file on another volume, or the "
        "newest entry as printed by ledger show.", "FILE")] = None  # fmt: skip


@dataclass(kw_only=True)
class NewAnchorOptions(AnchoredOptions):
    """The ledger, and an anchor to create."""

    anchor: Annotated[str | None, Option("Anchor to create, on another volume.", "FILE")] = None


@dataclass(kw_only=True)
class CreateOptions(LimitOptions, PublicRows, NeighbourOptions, PromiseOptions, NewAnchorOptions):
    """The options of `ledger create`."""

    epsilon: Annotated[float | None, Option(
        "Privacy loss of all runs together. Required, unless --rho is set.", "E", BUDGET
    )] = None  # fmt: skip
    rho: Annotated[float | None, Option(
        "The total in zCDP, instead of --epsilon.", "R", BUDGET)] = None  # fmt: skip
    discovery_delta: Annotated[float, Option(
        "Part of delta that is set aside for runs that discover the values of columns.", "D",
        BUDGET)] = 0.0  # fmt: skip
    person: Annotated[str | None, Option(
        "Person column of the schemas of all runs. The total then protects all rows of a person.",
        "COLUMN", default="the total protects a row")] = None  # fmt: skip
    schema: Annotated[Path | None, Option(
        "Schema of the set of tables of all runs. The total then protects a row of the root with "
        "all rows below it.", "FILE")] = None  # fmt: skip


def create(*, options: CreateOptions) -> None:
    """Create a ledger with the total that all runs on a data set may spend together.

    The total is set once. A secret key is written next to the ledger, to FILE.key; a resumed run
    uses it to recognise its table. An anchor on another volume detects old copies of the ledger.
    Set it with --anchor in every run.
    """
    path, anchor = options.path, options.anchor
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.entries import Total
    from adaptive_qs.privacy.budget import check_budget_warnings

    total = Total.from_parameters(
        options.epsilon, options.delta, options.rho, options.discovery_delta
    )
    unit = _find_unit(options)
    check_distinct([Path(anchor) if anchor else None], companions(LedgerOptions(ledger=path)))
    warnings = total.list_warnings(options.public_rows)
    for warning in check_budget_warnings(warnings, options.beyond_limits):
        io.warn(warning)
    book = LedgerBook.create(path, total.limit, total.declared, anchor, unit)
    io.emit(f"{path}: total budget of all runs: {_format_cost(book, book.limit)}")


def _find_unit(options: CreateOptions) -> Unit:
    from adaptive_qs.privacy.unit import SetMember, Unit
    from adaptive_qs.table.tables import TableSet

    schema, person = options.schema, options.person
    unit = Unit.of(person, None if person is None else 1, options.neighbours)
    if schema is None:
        return unit
    described = TableSet.load(schema)
    if not described.is_set:
        raise InputError(
            f"{schema} describes one table. Remove --schema, and use --person COLUMN if the schema "
            "names a person column."
        )
    if person is not None:
        raise InputError(
            "--person cannot be combined with the schema of a set, whose root row is protected."
        )
    return replace(unit, related=SetMember(described.names, described.root, described.joins))


@dataclass(kw_only=True)
class ShowOptions(JsonOptions, AnchoredOptions):
    """The options of `ledger show`."""


def show(*, options: ShowOptions) -> None:
    """Show the total, what is left, what each run spent, and the newest entry (head)."""
    book = options.open_book(reading=True)
    runs = book.runs()
    if options.as_json:
        io.emit_json(_list_fields(book, runs))
        return
    io.emit_rows(str(book.path), _list_rows(book, runs))
    if runs:
        names = ["run", "command", "state", "releases", "started", "rho spent", "rho reserved"]
        io.emit_columns(names, _list_runs(runs))


@dataclass(kw_only=True)
class VerifyOptions(JsonOptions, MemoryOptions, AnchoredOptions):
    """The options of `ledger verify`."""

    release: Annotated[Path | None, Option(
        "Release, answers or a table with its .manifest.json. Also check that a run of this ledger "
        "made it.", "FILE")] = None  # fmt: skip


def verify(*, options: VerifyOptions) -> None:
    """Check every entry: hashes, costs, sums and stored answers.

    For a release, check its charges, the digests of its members, and that the statement and the
    page follow from the other members.
    """
    from adaptive_qs.audit.released import read_released

    release, book = options.release, options.open_book(reading=True)
    entries = book.verify()
    content: dict[str, Any] = {"ledger": book.identity, "entries": entries, "sound": True}
    text = f"{book.path}: {counted(entries, 'entry', 'entries')}, all sound"
    if release is not None:
        found = read_released(release, options.max_memory)
        found.check(book)
        content |= {"release": str(release), "unchecked": list(found.unchecked)}
        text += f"; {release} is recorded in it"
        text += f"; not checked: {', '.join(found.unchecked)}" if found.unchecked else ""
    io.emit_json(content) if options.as_json else io.emit(text)


@dataclass(kw_only=True)
class ExportOptions(ForceOptions, AnchoredOptions):
    """The options of `ledger export`."""

    out: Annotated[Path | None, Option("JSON file.", "FILE", OUTPUT, "print")] = None


def export(*, options: ExportOptions) -> None:
    """Write all entries as JSON for auditors, without the key and the noisy answers."""
    from adaptive_qs.ledger.book import export_json
    from adaptive_qs.table.files import atomic_writer

    if (out := options.out) is not None:
        check_distinct([out], companions(options))
        common.check_file(out, options.force)
    text = export_json(options.open_book(reading=True))
    if out is None:
        io.emit(text)
        return
    with atomic_writer(out, options.force) as file:
        file.write(text.encode())
    io.emit(f"{out} is written.")


@dataclass(kw_only=True)
class CloseOptions(AnchoredOptions):
    """The options of `ledger close`."""

    run: Annotated[int | None, Option("Number of the run.", "N", check=_as_run)] = None


def close(*, options: CloseOptions) -> None:
    """Close an interrupted run and return its unspent budget to the ledger.

    Its noisy answers are deleted, and it cannot be resumed.
    """
    path, run = options.path, options.run
    if run is None:
        raise InputError("No run is set. Use --run N; adaptive-qs ledger show lists the runs.")
    book = options.open_book()
    book.close_run(run)
    io.emit(f"{path}: run {run} is closed; {_format_cost(book, book.left, left=True)} left")


def anchor(*, options: NewAnchorOptions) -> None:
    """Create an anchor for a ledger that has none.

    If ledger and mark are restored from one copy, a budget could be spent twice. The anchor, on
    another volume, shows this to every command with --anchor.
    """
    bare, anchor = LedgerOptions(ledger=options.path), options.anchor
    if anchor is None:
        raise InputError("No anchor is set. Use --anchor with a file on another volume.")
    check_distinct([Path(anchor)], companions(bare))
    bare.open_book().anchor(anchor)
    io.emit(f"{anchor} is written. Set --anchor {anchor} in every run.")


@dataclass(kw_only=True)
class RestoreOptions(MemoryOptions, AnchoredOptions):
    """The options of `ledger restore`."""

    release: Annotated[list[Path] | None, Option(
        "Release, answers or a table with its .manifest.json, made since the copy. Can be "
        "repeated.", "FILE")] = None  # fmt: skip
    rho: Annotated[float | None, Option(
        "Other budget that was spent since the copy was made, in zCDP.", "R",
        check=arguments.positive_number)] = None  # fmt: skip
    discovery_delta: Annotated[float, Option(
        "Part of delta that was spent on discovery since the copy was made.", "D", check=_as_delta
    )] = 0.0  # fmt: skip
    none: Annotated[bool, Option("Nothing was released since the copy was made.")] = False
    missing: Annotated[int, Option(
        "With --none: number of entries that the copy is known to lack.", "N",
        check=arguments.natural_number)] = 0  # fmt: skip
    lock: Annotated[bool, Option("Lock the ledger until it is stated what was released.")] = False


def restore(*, options: RestoreOptions) -> None:
    """After restoring a backup of a ledger, count what was released since the backup was made.

    Without --release, --rho and --none, a copy that is known to lack entries, or whose mark is
    lost, is locked: it accepts no run until one of them is set. --lock locks any other copy.
    Releases that the copy contains are not counted again.
    """
    from adaptive_qs.audit.released import read_released
    from adaptive_qs.privacy.events import Cost

    path, nothing, missing = options.path, options.none, options.missing
    rho, discovery_delta = options.rho, options.discovery_delta
    confirmed = nothing or bool(options.release) or rho is not None or bool(discovery_delta)
    if nothing and (options.release or rho is not None or discovery_delta):
        raise InputError(
            "--none cannot be combined with --release, --rho or --discovery-delta. Use one of them."
        )
    if missing and not nothing:
        raise InputError(
            "--missing needs --none, which states that the lost entries released nothing."
        )
    stated = Cost.covering(rho or 0.0, discovery_delta)
    found = [read_released(file, options.max_memory) for file in options.release or ()]
    book = options.open_book(restoring=True)
    lost = [one.recovered(book.identity) for one in found]
    if nothing and missing != book.missing:
        raise InputError(
            f"{path} is known to lack {counted(book.missing, 'entry', 'entries')}. State what they "
            "released with --release or what they spent with --rho. If they released nothing, set "
            f"--none --missing {book.missing}."
        )
    if options.lock and confirmed:
        raise InputError(
            "--lock cannot be combined with --release, --rho or --none. Use one of them."
        )
    if not (confirmed or options.lock or book.missing or book.unmarked or book.locked):
        raise InputError(
            f"{path} is not known to lack entries. {STATE} To refuse runs until then, set --lock."
        )
    entry = book.restore(lost, stated, confirmed)
    if not entry.confirmed:
        io.emit(f"{path} is now locked. {STATE}")
        return
    left = _format_cost(book, book.left, left=True)
    io.emit(f"{path}: {_describe_restored(book, entry)}; {left} left")


COMMANDS = (create, show, verify, export, close, anchor, restore)
