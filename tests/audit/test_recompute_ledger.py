"""Exported ledgers recomputed: sound ones, forged ones and damaged ones."""

import json
from contextlib import closing
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

from adaptive_qs.errors import BudgetExceeded
from adaptive_qs.ledger.book import LedgerBook, export_json
from adaptive_qs.ledger.entries import Recovered, Row
from adaptive_qs.ledger.run import collect_runs
from adaptive_qs.privacy.events import Cost, GaussianEvent, PartitionEvent, Purpose, SelectionEvent

from . import recompute_ledger

EVENTS = (
    GaussianEvent(Purpose.STRATEGY, ("counts é",), 1, 3),
    SelectionEvent(Purpose.SELECTION, (), 0.1),
    PartitionEvent(Purpose.VALUES, ("a",), Fraction(4), 20, Fraction(1, 10**9)),
)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """A ledger with a finished run, one given up before any release, and one under way."""
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    LedgerBook.create(path, Cost.within(2, 1e-8), {"rho": 2.0, "delta": 1e-6}).close()
    ends = {"first": "finish", "second": "leave", "third": None}
    for name, end in ends.items():
        book = LedgerBook(path)
        run = book.reserve({"command": name}, "0" * 64, Cost.within(0.75, 3e-9))
        if end != "leave":
            for event in EVENTS:
                run.release([event], lambda: [np.arange(3)])
        if end:
            getattr(run, end)()
    with closing(LedgerBook(path)) as book:
        return json.loads(export_json(book))


def rewritten(export, change):
    """The ledger as somebody would forge it: entries changed, and the chain computed anew."""
    forged = deepcopy(export)
    bodies = [json.loads(entry["body"]) for entry in forged["entries"]]
    change(bodies)
    previous = bytes(32)
    for number, (entry, body) in enumerate(zip(forged["entries"], bodies), 1):
        entry["body"] = json.dumps(body)
        previous = recompute_ledger.link(previous, number, entry["time"], entry["body"])
        entry["hash"] = previous.hex()
    del forged["entries"][len(bodies) :]
    return forged


def first(bodies, kind):
    return next(body for body in bodies if body["kind"] == kind)


def less(price, part="rho_units", by=1):
    price[part] -= by


FORGED = {
    "a release costs one unit less": lambda b: less(first(b, "released")["price"]),
    "a discovery costs no delta": lambda b: b[4]["price"].update(delta_units=0),
    "more noise is claimed": lambda b: first(b, "released")["transcript"]["events"][0].update(
        noise_variance="4/1"
    ),
    "a run is closed for less": lambda b: less(first(b, "closed")["price"]),
    "one unit less is held": lambda b: less(b[-1]["held"]),
    "less of delta is held": lambda b: less(b[-1]["held"], "delta_units"),
    "the total is one unit below what was held": lambda b: b[0]["total"].update(
        rho_units=max(body["held"]["rho_units"] for body in b) - 1
    ),
    "the share of delta is one unit below": lambda b: b[0]["total"].update(
        delta_units=max(body["held"]["delta_units"] for body in b) - 1
    ),
    "a run reserved less than it spent": lambda b: less(first(b, "reserved")["price"], by=2**58),
    "a release is missing": lambda b: b.pop(3),
    "a release stands twice": lambda b: b.insert(3, b[2]),
    "a release has no outputs": lambda b: first(b, "released").update(outputs=[]),
    "a run begins twice": lambda b: b.insert(2, b[1]),
    "a run goes on after its end": lambda b: b.insert(6, b[4]),
    "the total is set twice": lambda b: b.insert(1, b[0]),
    "another ledger": lambda b: b[0].update(ledger="0" * 32),
    "nothing is left": lambda b: b.clear(),
}


@pytest.mark.parametrize("case", [None, *FORGED])
def test_what_a_forged_ledger_hides_is_found(case, export):
    forged = rewritten(export, FORGED[case] if case else lambda bodies: None)
    assert bool(recompute_ledger.ledger_problems(forged)) == bool(case)


@pytest.mark.parametrize("field", ["time", "body", "hash", "number"])
def test_any_change_breaks_the_chain(export, field):
    assert recompute_ledger.ledger_problems(export) == []
    for entry in range(len(export["entries"])):
        changed = deepcopy(export)
        value = changed["entries"][entry][field]
        changed["entries"][entry][field] = value + (" " if isinstance(value, str) else 1)
        assert recompute_ledger.ledger_problems(changed)[0].startswith(f"entry {entry + 1}: ")


def test_a_release_that_is_not_the_run_s_is_found(export):
    run = recompute_ledger.Book(export).runs[1]
    place = {
        "ledger": export["ledger"],
        "run": 1,
        "releases": 3,
        "hash": recompute_ledger.release_chain(run),
    }
    placed = recompute_ledger.placement_problems
    assert placed(export, {"ledger": place}, run.records) == []
    assert placed(export, {"ledger": place}, run.records[1:])
    for other in ({"ledger": "0" * 32}, {"run": 2}, {"run": 9}, {"releases": 2}, {"hash": "00"}):
        assert placed(export, {"ledger": place | other}, run.records)


def test_what_a_copy_lacked_counts_beyond_the_total_and_blocks_every_run(tmp_path):
    """Recomputed as the program counts it; and one unit less is found by both."""
    path = tmp_path / "ledger"
    LedgerBook.create(path, Cost(100), {"rho": 2.0, "delta": 1e-6}).close()
    with closing(LedgerBook(path, restoring=True)) as book:
        lost = Recovered(
            run=7, releases=1, hash="0" * 64, price=Cost(90), digests={"answers": "1" * 64}
        )
        book.restore([lost, lost], Cost(30), confirmed=True)
        assert (book.held, book.left, book.verify()) == (Cost(120), Cost(), 2)
        with pytest.raises(BudgetExceeded, match="used up"):
            book.reserve({"command": "a"}, "0" * 64, Cost(1))
        sound = json.loads(export_json(book))
    assert recompute_ledger.Book(sound).problems == []
    forged = rewritten(sound, lambda b: less(first(b, "restored")["stated"]))
    assert recompute_ledger.Book(forged).problems != []
    rows = [Row(e["number"], e["time"], e["body"], b"") for e in forged["entries"]]
    with pytest.raises(ValueError, match="entry 2: does not count what was spent"):
        collect_runs(rows)
