"""Which interrupted run a request continues, and why it continues none."""

from __future__ import annotations

from collections.abc import Mapping

from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger.entries import Reserved
from adaptive_qs.ledger.run import reservation
from adaptive_qs.ledger.store import Store


def open_runs(store: Store) -> list[Reserved]:
    """The reservations of all runs that are not closed, newest first.

    Raises:
        LedgerError: all are.
    """
    found = [reservation(store, number) for number in reversed(store.open_runs())]
    if not found:
        raise LedgerError(
            f"{store.path}: no interrupted run to resume: leave out --resume to start a new one, "
            "which spends budget anew"
        )
    return found


def matching_run(store: Store, request: Mapping[str, str], inputs: str) -> Reserved:
    """The newest open run that asked for the same about the same table.

    Args:
        store: the ledger's file.
        request: everything public that decides what a run does.
        inputs: keyed hash of the private table.

    Raises:
        LedgerError: there is none, or the table or a parameter differs.
    """
    candidates = open_runs(store)
    same = [past for past in candidates if past.request == dict(request)]
    if not same:
        raise LedgerError(f"{store.path}: {_difference(candidates, request)}")
    found = next((past for past in same if store.input(past.run) == inputs), None)
    if found is None:
        raise LedgerError(
            f"{store.path}: the private table is not the one that run {same[0].run} read: restore "
            "it, or start a new run without --resume"
        )
    return found


def _difference(open_runs: list[Reserved], request: Mapping[str, str]) -> str:
    """What the most similar run was asked for otherwise."""
    run, different = min(
        ((past.run, _changed(past.request, request)) for past in open_runs),
        key=lambda found: (found[1] == ["command"], len(found[1])),
    )
    return (
        f"run {run} was started with another {', '.join(different)}: repeat its command with "
        "--resume added, or leave out --resume to start a new run, which spends budget anew"
    )


def _changed(past: Mapping[str, str], request: Mapping[str, str]) -> list[str]:
    names = sorted(past.keys() | request.keys())
    different = [name for name in names if past.get(name) != request.get(name)]
    return ["command"] if "command" in different else different
