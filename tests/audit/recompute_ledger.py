"""An exported ledger recomputed: hashes, costs, sums and the total; no tolerance anywhere.

Nothing of the package is imported. What the entries mean is told by the export itself and by the
documentation of the ledger.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field

from .recompute import Units, units

NOTHING = Units()


@dataclass
class Run:
    """What the entries so far tell of one run.

    Attributes:
        reserved: what it may spend.
        releases: the records and the hashes of the outputs of each.
        spent: cost of the releases.
        closed: whether it is over.
    """

    reserved: Units
    budget: str
    releases: list = field(default_factory=list)
    spent: Units = NOTHING
    closed: bool = False

    @property
    def records(self) -> list:
        """Everything that it was charged for."""
        return [record for transcript, _ in self.releases for record in transcript["events"]]

    @property
    def counted(self) -> Units:
        """What counts against the total."""
        return self.spent if self.closed else self.reserved


class Book:
    """Entries read one after the other; ``problems`` collects what does not fit."""

    def __init__(self, export):
        self.problems: list[str] = []
        self.runs: dict[int, Run] = {}
        self.total = NOTHING
        self._held = NOTHING
        self._lacked = False  # whether nothing was reserved since a copy was put back
        previous = bytes(32)
        for number, entry in enumerate(export["entries"], 1):
            digest = link(previous, number, entry["time"], entry["body"])
            found = [] if digest.hex() == entry["hash"] else ["its hash is another"]
            if entry["number"] != number:
                found.append("it has another number")
            found += self._read(number, json.loads(entry["body"]), export["ledger"])
            self.problems += [f"entry {number}: {problem}" for problem in found]
            previous = digest
        if not export["entries"]:
            self.problems.append("there are no entries")

    def _read(self, number, body, identity) -> list[str]:
        if (body["kind"] == "opened") != (number == 1):
            return ["the total is not set once, at the beginning"]
        if number == 1:
            self.total, self._declared = Units.read(body["total"]), body["declared"]
            found = [] if body["ledger"] == identity else ["it names another ledger"]
        elif body["kind"] == "restored":
            found = self._read_restored(body)
        elif body["kind"] == "published":
            run = self.runs.get(body["run"])
            found = ["there is no such open run"] if run is None or run.closed else []
        else:
            found = self._read_run(body)
        held = Units.read(body["held"])
        if held != self._held:
            found.append("what is held is not what the runs reserved and spent")
        self._lacked = body["kind"] == "restored" or (self._lacked and body["kind"] != "reserved")
        if not self._held.within(self.total) and not self._lacked and not self._is_one_run():
            found.append("the total is exceeded")
        return found

    def _is_one_run(self) -> bool:
        """Whether all that counts is one run, which promises the ε and δ of the total itself."""
        counting = [run for run in self.runs.values() if run.counted != NOTHING]
        if len(counting) != 1 or "epsilon" not in self._declared:
            return False
        words = counting[0].budget.split(", ")
        promise = {name: float(value) for name, value in map(str.split, words[-2:])}
        return all(promise[name] <= self._declared[name] for name in ("epsilon", "delta"))

    def _read_restored(self, body) -> list[str]:
        """What a copy lacked, all of which counts, whatever the total."""
        prices = [Units.read(release["price"]) for release in body["releases"]]
        self._held = Units.sum([self._held, Units.read(body["stated"]), *prices])
        return []

    def _read_run(self, body) -> list[str]:
        """A step of a run; what is held afterwards is the sum before, less and plus this run's."""
        number, price = body["run"], Units.read(body["price"])
        run = self.runs.get(number)
        before = NOTHING if run is None else run.counted
        if body["kind"] == "reserved":
            if run is not None:
                return ["the run exists already"]
            budget = body["request"].get("budget", "epsilon inf, delta inf")
            run = self.runs[number] = Run(price, budget)
            found = []
        elif run is None or run.closed:
            return ["there is no such open run"]
        elif body["kind"] == "released":
            found = _release(run, body, price)
        elif body["kind"] == "closed":
            found = [] if run.spent == price else ["the run spent something else"]
            run.closed = True
        else:
            return [f"unknown kind {body['kind']!r}"]
        after = run.counted
        self._held = Units(*(h - b + a for h, b, a in zip(self._held, before, after)))
        return found


def link(previous: bytes, number: int, time: str, body: str) -> bytes:
    """The hash of an entry that follows one with the hash ``previous``."""
    digest = hashlib.sha256(previous)
    for text in (str(number), time, body):
        digest.update(len(text.encode()).to_bytes(8, "big") + text.encode())
    return digest.digest()


def _release(run: Run, body, price: Units) -> list[str]:
    records = body["transcript"]["events"]
    found = []
    if body["position"] != len(run.releases):
        found.append("it is not the next release of its run")
    cost = Units.sum(map(units, records))
    if cost != price:
        found.append("it costs something else than its events")
    if len(records) != len(body["outputs"]):
        found.append("it has not one output for each event")
    run.spent = Units.sum([run.spent, cost])
    run.releases.append((body["transcript"], body["outputs"]))
    if not run.spent.within(run.reserved):
        found.append("its run spent more than it reserved")
    return found


def release_chain(run: Run) -> str:
    """The hash by which a release names everything that its run gave out and what it cost."""
    previous = bytes(32)
    for transcript, outputs in run.releases:
        text = json.dumps(transcript, separators=(",", ":"), ensure_ascii=False)
        previous = hashlib.sha256(previous + json.dumps([text, *outputs]).encode()).digest()
    return previous.hex()


def ledger_problems(export) -> list[str]:
    """Whatever in an exported ledger is not sound, entry by entry."""
    return Book(export).problems


def placement_problems(export, manifest, records) -> list[str]:
    """Whether a release states the run of this ledger in which its charges stand, all of them."""
    place = manifest["ledger"]
    run = Book(export).runs.get(place["run"])
    if place["ledger"] != export["ledger"] or run is None:
        return ["the release names another ledger or run"]
    found = []
    if (place["releases"], place["hash"]) != (len(run.releases), release_chain(run)):
        found.append("the run gave out something else than the release says")
    if _kinds(records) != _kinds(run.records):
        found.append("the run was charged for something else than the release says")
    return found


def _kinds(records) -> Counter:
    """Charges by their purpose and parameters, whatever their columns."""
    return Counter(json.dumps({**record, "columns": []}, sort_keys=True) for record in records)
