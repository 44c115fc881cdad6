"""What happened on a ledger, run by run, and whether it adds up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from adaptive_qs.ledger.chain import Row
from adaptive_qs.ledger.entries import (
    Closed,
    Opened,
    Published,
    Released,
    Reserved,
    Restored,
    parse_body,
)
from adaptive_qs.privacy.events import Cost, Event

State = Literal["open", "finished", "closed"]


@dataclass(frozen=True)
class RunState:
    """What a ledger knows of one run.

    Attributes:
        number: of the run.
        state: "open" (at work or interrupted), "finished", or "closed" before it was.
        reserved: what it might spend.
        spent: what it spent.
        events: what was released.
        releases: in how many transactions.
        request: the public parameters of the run.
        insecure: whether its noise came from a seed.
        started, ended: times of its first and its last entry, UTC.
    """

    number: int
    state: State
    reserved: Cost
    spent: Cost
    events: tuple[Event, ...]
    releases: int
    request: Mapping[str, str]
    insecure: bool
    started: str
    ended: str


def runs_of(rows: Iterable[Row]) -> list[RunState]:
    """All runs in the order in which they began, from all entries.

    Costs are computed anew from the events, the budget from the runs, and both compared with what
    the entries say.

    Raises:
        ValueError: an entry does not fit those before it; the message starts with its number.
    """
    runs: dict[int, RunState] = {}
    held = total = Cost()
    for row in rows:
        try:
            body = parse_body(row.body)
            if isinstance(body, Opened):
                if row.number != 1:
                    raise ValueError("sets the total a second time")
                total = body.total.cost()
            elif isinstance(body, Restored):
                held += body.cost
            else:
                before = runs.get(body.run)
                runs[body.run] = now = _after(before, body, row.time)
                held += _counted(now) - (Cost() if before is None else _counted(before))
            # Only what was released from a copy that is lost may exceed the total.
            exceeds = isinstance(body, Reserved) and not held.fits(total)
            if body.held.cost() != held or exceeds:
                raise ValueError("does not count what was spent")
        except ValueError as error:
            raise ValueError(f"entry {row.number:,}: {error}") from None
    return list(runs.values())


def _after(
    run: RunState | None, body: Reserved | Released | Published | Closed, time: str
) -> RunState:
    if isinstance(body, Reserved):
        if run is not None:
            raise ValueError("reserves for a run that exists")
        return RunState(
            body.run, "open", body.price.cost(), Cost(), (), 0, body.request, body.insecure,
            time, time,
        )  # fmt: skip
    if run is None or run.state != "open":
        raise ValueError("belongs to a run that is not open")
    if isinstance(body, Released):
        events = body.transcript.restored()
        cost = Cost.of(events)
        if body.position != run.releases or len(events) != len(body.outputs):
            raise ValueError("is not the next release of its run")
        if cost != body.price.cost():
            raise ValueError("states another cost than that of its events")
        return replace(
            run, spent=run.spent + cost, events=run.events + events, releases=run.releases + 1,
            ended=time,
        )  # fmt: skip
    if isinstance(body, Published):
        return replace(run, ended=time)
    if body.price.cost() != run.spent:
        raise ValueError("closes a run with another cost than that of its releases")
    return replace(run, state="finished" if body.finished else "closed", ended=time)


def _counted(run: RunState) -> Cost:
    """What a run counts against the total."""
    return run.reserved if run.state == "open" else run.spent
