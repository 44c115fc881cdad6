"""Any sequence of runs, releases, crashes and resumptions, against a slow and obvious model."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adaptive_qs.errors import BudgetExceeded, LedgerError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.events import Cost

from .helpers import INPUTS, costing, crash, new_book

TOTAL = 60
KINDS = st.integers(0, 1)


@dataclass
class Run:
    """What is known of a run without looking at the ledger."""

    number: int
    kind: int
    reserved: int
    committed: list = field(default_factory=list)  # (units, outputs) of each release
    seen: int = 0  # releases handed out by the attempt at work
    live: object = None  # the LedgerRun of the attempt at work
    open: bool = True

    @property
    def spent(self):
        return sum(units for units, _ in self.committed)

    @property
    def handed(self):
        return sum(units for units, _ in self.committed[: self.seen])


def request(kind):
    return {"command": "synthesize", "schema": str(kind)}


class Ledgers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger"
        new_book(self.path, TOTAL).close()
        self.runs = []

    def teardown(self):
        for run in self.live():
            crash(run.live)
        self.folder.cleanup()

    def live(self):
        return [run for run in self.runs if run.live is not None]

    def held(self):
        return sum(run.reserved if run.open else run.spent for run in self.runs)

    def one(self, data, runs):
        return data.draw(st.sampled_from(runs))

    @rule(units=st.integers(1, 40), kind=KINDS)
    def reserve(self, units, kind):
        book = LedgerBook(self.path)
        if any(run.open and run.live is None and run.kind == kind for run in self.runs):
            with pytest.raises(LedgerError, match="Continue it with --resume"):
                book.reserve(request(kind), INPUTS, Cost(units))
            book.close()
            return
        if self.held() + units > TOTAL:
            with pytest.raises(BudgetExceeded):
                book.reserve(request(kind), INPUTS, Cost(units))
            book.close()
            return
        live = book.reserve(request(kind), INPUTS, Cost(units))
        self.runs.append(Run(len(self.runs) + 1, kind, units, live=live))
        assert live.number == len(self.runs)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), parts=st.lists(st.integers(1, 9), min_size=1, max_size=3))
    def release(self, data, parts):
        run = self.one(data, self.live())
        if run.seen < len(run.committed):  # a resumed run asks for what it asked for before
            outputs = run.committed[run.seen][1]
            events = [costing(len(part)) for part in outputs]
            found = run.live.release(events, lambda: pytest.fail("drew a second time"))
            assert [list(part) for part in found] == outputs
            run.seen += 1
            return
        events = [costing(part) for part in parts]
        outputs = [data.draw(st.lists(st.integers(0, 9), min_size=p, max_size=p)) for p in parts]
        vectors = [np.array(part, dtype=np.int64) for part in outputs]
        if run.handed + sum(parts) > run.reserved:
            with pytest.raises(BudgetExceeded):
                run.live.release(events, lambda: pytest.fail("drew what was refused"))
            return
        run.live.release(events, lambda: vectors)
        run.committed.append((sum(parts), outputs))
        run.seen += 1

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def release_something_else(self, data):
        run = self.one(data, self.live())
        if run.seen < len(run.committed):
            with pytest.raises(LedgerError, match="something else"):
                run.live.release([costing(1, "other")], lambda: pytest.fail("drew"))

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def die_during_a_draw(self, data):
        run = self.one(data, self.live())
        if run.seen == len(run.committed) and run.handed < run.reserved:

            def die():
                raise SystemExit

            with pytest.raises(SystemExit):
                run.live.release([costing(1)], die)
            with pytest.raises(LedgerError, match="resume"):
                run.live.release([costing(1)], die)
        self.end(run, crash)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def die(self, data):
        self.end(self.one(data, self.live()), crash)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def leave(self, data):
        run = self.one(data, self.live())
        self.end(run, lambda live: live.leave())
        run.open = bool(run.committed)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def finish(self, data):
        run = self.one(data, self.live())
        self.end(run, lambda live: live.finish())
        run.open = False

    def end(self, run, how):
        how(run.live)
        run.live, run.seen = None, 0

    @rule(kind=KINDS, inputs=st.sampled_from([INPUTS, INPUTS, "cd" * 32]))
    def resume(self, kind, inputs):
        book = LedgerBook(self.path)
        same = [run for run in self.runs if run.open and run.kind == kind]
        if same and inputs == INPUTS and same[-1].live is None:
            run = same[-1]
            run.live = book.resume(request(kind), inputs)
            assert (run.live.number, run.live.resumed) == (run.number, len(run.committed))
            assert run.live.limit == Cost(run.reserved)
            return
        with pytest.raises(LedgerError):
            book.resume(request(kind), inputs)
        book.close()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def close(self, data):
        run = self.one(data, self.runs)
        book = LedgerBook(self.path)
        if run.open and run.live is None:
            book.close_run(run.number)
            run.open = False
        else:
            with pytest.raises(LedgerError):
                book.close_run(run.number)
        book.close()

    @invariant()
    def the_ledger_says_the_same(self):
        book = LedgerBook(self.path)
        assert book.held == Cost(self.held())
        assert book.held.rho_units <= TOTAL
        found = book.runs()
        assert [(r.number, r.state == "open", r.reserved, r.spent) for r in found] == [
            (r.number, r.open, Cost(r.reserved), Cost(r.spent)) for r in self.runs
        ]
        book.verify()
        book.close()


Ledgers.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestLedgers = pytest.mark.slow(Ledgers.TestCase)
