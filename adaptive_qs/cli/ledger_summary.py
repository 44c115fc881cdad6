"""What a ledger says of a data set's budget, for people and for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adaptive_qs.cli.output import Row

if TYPE_CHECKING:
    from adaptive_qs.ledger.book import LedgerBook
    from adaptive_qs.ledger.entries import Restored
    from adaptive_qs.ledger.overview import RunState
    from adaptive_qs.ledger.session import Closing
    from adaptive_qs.privacy.events import Cost


def closing_lines(closed: Closing | None) -> list[Row]:
    """Which run of which ledger it was, and what is left there."""
    if closed is None:
        return []
    left = f"{_rho_words(closed.left, left=True)} left"
    return [("ledger", f"{closed.path}: run {closed.run} is finished; {left}")]


def closing_json(closed: Closing | None) -> dict[str, Any] | None:
    """The same for scripts; None without a ledger."""
    if closed is None:
        return None
    return {
        "path": str(closed.path),
        "run": closed.run,
        "rho_left": float(closed.left.rho),
        "head": closed.head,
    }


def ledger_lines(book: LedgerBook, runs: list[RunState]) -> list[Row]:
    """Total, what is counted against it and what is left."""
    from adaptive_qs.privacy.neighbours import NEIGHBOURS, UNIT

    lines = [
        ("total", cost_words(book, book.limit)),
        ("counted", cost_words(book, book.held)),
        ("left", cost_words(book, book.left, left=True)),
        ("protects", f"{UNIT}; neighbouring tables {NEIGHBOURS}"),
        ("head", book.head),
        *_restored_lines(book),
    ]
    open_runs = [str(run.number) for run in runs if run.state == "open"]
    if open_runs:
        lines.append(
            ("open", f"run {', '.join(open_runs)}: at work, or to be continued with --resume")
        )
    if any(run.insecure for run in runs):
        lines.append(("NOT PRIVATE", "some runs drew their noise from a seed"))
    return lines


def restored_words(book: LedgerBook, entry: Restored) -> str:
    """What was counted when a copy was put back."""
    if not entry.confirmed:
        return "a copy was put back; nobody had said what was released since"
    counted = [f"{len(entry.releases):,} lost release{'' if len(entry.releases) == 1 else 's'}"]
    if entry.stated.cost().rho_units or entry.stated.cost().delta_units:
        counted.append(f"{_rho_words(entry.stated.cost())} as stated")
    if entry.missing:
        counted.append(f"nothing else of {entry.missing:,} lost entries")
    return f"a copy was put back; counted: {' and '.join(counted)}, {cost_words(book, entry.cost)}"


def _restored_lines(book: LedgerBook) -> list[Row]:
    lines = [("restored", restored_words(book, entry)) for entry in book.restorations()]
    if book.locked:
        lines.append(("LOCKED", "adaptive-qs ledger restore opens it again"))
    if not book.held.fits(book.limit):
        lines.append(("EXCEEDED", "more was released than the total: the promise of it is broken"))
    return lines


def run_columns(run: RunState) -> list[str]:
    """One run: number, command, state, releases, start, ρ spent and reserved."""
    state = f"{run.state}, NOT PRIVATE" if run.insecure else run.state
    command = run.request.get("command", "?")
    reserved = "" if run.state != "open" else f"{float(run.reserved.rho):.6g}"
    return [
        str(run.number), command, state, f"{run.releases:,}", run.started[:16].replace("T", " "),
        f"{float(run.spent.rho):.6g}", reserved,
    ]  # fmt: skip


def cost_words(book: LedgerBook, cost: Cost, left: bool = False) -> str:
    """A cost in zCDP, and as the ε that it implies at the ledger's δ.

    Args:
        book: the ledger.
        cost: of runs, or that of which runs may still spend.
        left: whether it is the latter, which is rounded down: a run may spend what is shown.
    """
    from adaptive_qs.ledger.accounting import epsilon_at

    words = _rho_words(cost, left)
    delta = book.declared["delta"]
    epsilon = epsilon_at(cost, delta)
    if epsilon is not None:
        words += f", epsilon {epsilon:.6g} at delta {delta:g}"
    if cost.delta_units:
        words += f", of which {float(cost.delta):.3g} for discovery"
    return words


def _rho_words(cost: Cost, left: bool = False) -> str:
    from adaptive_qs.ledger.remaining import digits_below
    from adaptive_qs.privacy.neighbours import zcdp_name

    rho = digits_below(float(cost.rho)) if left else f"{float(cost.rho):.6g}"
    return f"rho {rho} ({zcdp_name(float(cost.delta))})"


def ledger_json(book: LedgerBook, runs: list[RunState]) -> dict[str, Any]:
    """All of it, with the ε of every cost at the ledger's δ, and μ of batches of answers."""
    from adaptive_qs.ledger.accounting import gaussian_mu

    return {
        "ledger": book.identity,
        "declared": dict(book.declared),
        "total": _cost_json(book, book.limit),
        "counted": _cost_json(book, book.held),
        "left": _cost_json(book, book.left),
        "head": book.head,
        "locked": book.locked,
        "restored": [
            {
                "confirmed": entry.confirmed,
                "missing": entry.missing,
                "releases": [release.run for release in entry.releases],
                "counted": _cost_json(book, entry.cost),
            }
            for entry in book.restorations()
        ],
        "runs": [
            {
                "run": run.number,
                "command": run.request.get("command"),
                "state": run.state,
                "releases": run.releases,
                "events": len(run.events),
                "started": run.started,
                "ended": run.ended,
                "seed_insecure": run.insecure,
                "reserved": _cost_json(book, run.reserved),
                "spent": _cost_json(book, run.spent),
                "gaussian_mu": gaussian_mu(run.events),
            }
            for run in runs
        ],
    }


def _cost_json(book: LedgerBook, cost: Cost) -> dict[str, Any]:
    from adaptive_qs.ledger.accounting import epsilon_at

    return {
        "rho": float(cost.rho),
        "rho_units": cost.rho_units,
        "discovery_delta": float(cost.delta),
        "epsilon": epsilon_at(cost, book.declared["delta"]),
    }
