"""The checks of this suite as functions: each returns what is wrong, nothing where all is well.

They are the suite's own, some of them made shorter. Mutants are run against them.
"""

import contextlib
import io
import json
import logging
import math
import os
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import openpyxl

from adaptive_qs.answering.plan import resolve_queries
from adaptive_qs.audit.audit import Synthesis, audit
from adaptive_qs.audit.replay import AuditReport, Check, Diverged, Recorder
from adaptive_qs.audit.tables import KINDS
from adaptive_qs.cli.entry import main
from adaptive_qs.domain import Domain, subsets
from adaptive_qs.errors import BudgetExceeded, InputError, LedgerError
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.loop.loop import run_loop
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.counts import Measurement, PrivateCounts, PrivateScores
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost, GaussianEvent, PartitionEvent, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, SystemEntropy
from adaptive_qs.privacy.query import Identity, LinearQuery
from adaptive_qs.privacy.selection import least_threshold
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema

from ..audit import curves, game, recompute
from ..doors import discover_values
from ..loop import test_levels, test_measure, test_strategies
from ..privacy import noise_paths, test_noise_tree

SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "a", "type": "categorical", "values": ["x", "y", "z"], "missing": ["?"]},
            {"name": "b", "type": "integer", "min": 0, "max": 11, "bins": 6},
            {"name": "c", "type": "boolean"},
        ],
    }
)
HEAPED = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "b", "type": "integer", "min": 0, "max": 59, "bins": 6,
             "heaps": [*range(0, 60, 2)]},
            {"name": "d", "type": "integer", "min": 0, "max": 59, "bins": 6, "private_heaps": 30},
            {"name": "c", "type": "boolean"},
        ],
    }
)  # fmt: skip
DRAWS = 200_000


@contextlib.contextmanager
def quick_tables():
    """Fit tables with few rows: these checks are not about their quality."""
    few = partial(SynthesisSettings, fit_rows=500)
    with mock.patch("adaptive_qs.release.release.SynthesisSettings", few):
        yield


class _Found(Exception):
    """Something was."""


class _FirstFinding(AuditReport):
    """A report that ends the audit at the first finding."""

    def note(self, check: Check, passed: bool, where: str, label: str) -> None:
        if not passed:
            raise _Found


class audited:  # noqa: N801  (a decorator)
    """A check that is an audit."""

    def __init__(self, run: Callable[[], AuditReport]) -> None:
        self.__name__, self.__doc__ = run.__name__, run.__doc__
        self._run = run

    def __call__(self) -> list[str]:
        """Everything that is wrong."""
        return [f"{f.check}: {f.label}" for f in self._run().findings]

    def finds(self) -> bool:
        """Whether anything is; it stops at the first, which most bugs show in the first pairs."""
        with mock.patch("adaptive_qs.audit.audit.AuditReport", _FirstFinding):
            try:
                self._run()
            except _Found:
                return True
        return False


@audited
def replay() -> AuditReport:
    """Neighbouring tables and frozen noise: requests, sensitivities and bytes."""
    return audit(SCHEMA, 2, 4 * len(KINDS), sample_every=10**6)


@audited
def counted_heaps() -> AuditReport:
    """The same where frequent values are counted first."""
    return audit(HEAPED, 2, pairs=len(KINDS), rhos=(5.0,), sample_every=10**6)


@audited
def replayed_tables() -> AuditReport:
    """The same for sampled tables."""
    with quick_tables():
        return audit(SCHEMA, 2, pairs=3, rhos=(5.0,), sample_every=1)


def levels() -> list[str]:
    """A run of the loop over groups of codes, replayed on a neighbour."""
    try:
        test_levels.test_levels_replay_on_a_neighbour(test_levels.MANY[1:])
    except (AssertionError, Diverged) as found:
        return [str(found)]
    return []


def strategies() -> list[str]:
    """Every row of a column that is measured by a strategy, against what is declared."""
    try:
        test_measure.test_no_row_moves_the_input_by_more_than_the_declared_sensitivity(
            "scaled", "strategies", (0,)
        )
        test_strategies.test_a_run_with_strategies_replays_on_a_neighbour(test_strategies.ROWS[1:])
    except (AssertionError, Diverged) as found:
        return [str(found)]
    return []


def noise() -> list[str]:
    """Noise of three paths against its exact law, and of measurements against each other."""
    paths = noise_paths.paths()
    wanted = ["counts, sigma 4/5", "residual, scaled", "strategy, cells"]
    return [f for name in wanted for f in noise_paths.faults(paths[name](DRAWS).figures())]


def selection() -> list[str]:
    """Frequencies of the exponential mechanism against its probabilities."""
    return noise_paths.faults(noise_paths.paths()["selection, scores"](20_000).figures())


def neighbour_game() -> list[str]:
    """The tester's lower bound of μ."""
    bound = game.batch_game(500).mu
    return [] if bound <= game.MU else [f"mu is at least {bound}"]


def trade_off() -> list[str]:
    """The trade-off curve of answers, whose noise is all Gaussian."""
    found = curves.audit_game(
        "answers, residuals", 3.0, 1, 40_000, 1, 1, np.random.default_rng(0)
    )  # fmt: skip
    return ["a point below the claimed curve"] if found["steps"]["breaks the claim"] else []


def sampler_tree() -> list[str]:
    """Some outputs of the sampler, all random words of a trial counted, against the exact law."""
    variance, wrong = Fraction(2), []
    for offset, block in ((0, 0), (0, 1), (1, 0), (1, 1)):
        value, lower, upper = test_noise_tree.bounds_in_block(variance, offset, block)
        least, most = test_noise_tree.exact(variance, value, 64)
        if not (lower <= most and least <= upper):
            wrong.append(f"another probability of {value}")
    return wrong


def recomputed() -> list[str]:
    """A release bundle recomputed from its file."""
    rng = np.random.default_rng(0)
    domain = SCHEMA.domain()
    table = CodedTable.from_codes(domain, [rng.integers(0, n, 300) for n in domain.sizes])
    rho = 0.1  # pairs are measured together, and the triple chosen
    job = Synthesis.of(SCHEMA, 3, rho)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job.publish(
            table, Mechanisms(Budget(rho, filtered=True), InsecureSeed(0)), folder, sampled=False
        )
        return recompute.problems(folder / "release.zip")


def counts() -> list[str]:
    """Marginals against a count row by row, and against a table too long for small floats."""
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({"a": 2, "b": 3, "c": 5})
    codes = np.array([rng.integers(0, n, 50) for n in domain.sizes])
    counter = MarginalCounter(CodedTable.from_codes(domain, codes))
    wrong = []
    for clique in subsets((0, 1, 2)):
        slow = np.zeros(domain.shape(clique), dtype=np.int64)
        for row in codes.T:
            slow[tuple(row[i] for i in clique)] += 1
        if not np.array_equal(counter.count(clique), slow):
            wrong.append(f"marginal {clique}")
    one = Domain.from_sizes({"a": 2})
    long = MarginalCounter(CodedTable.from_codes(one, [np.zeros(2**24 + 1, np.uint8)]))
    if long.count((0,)).tolist() != [2**24 + 1, 0]:
        wrong.append("a long table")
    return wrong


def budget() -> list[str]:
    """The ledger: nothing is forgiven, and what is refused is not drawn."""
    drawn = []

    def attempt(limit, *events):
        with contextlib.suppress(BudgetExceeded):
            ledger = Budget(limit)
            ledger.release(events, lambda: drawn.append(events) or [0] * len(events))
            return ledger
        return None

    whole = GaussianEvent(Purpose.STRATEGY, ("counts",), 1, Fraction(1, 2))
    above = GaussianEvent(
        Purpose.STRATEGY, ("counts",), 1 + Fraction(1, UNITS_PER_RHO), Fraction(1, 2)
    )
    third = GaussianEvent(Purpose.STRATEGY, ("counts",), 1, Fraction(3, 2))
    wrong = []
    if attempt(1.0, whole) is None:
        wrong.append("the whole budget is refused")
    drawn.clear()
    if attempt(1.0, above) or attempt(
        0.1, *[GaussianEvent(Purpose.STRATEGY, ("c",), Fraction(1, 10), 1)] * 3
    ):
        wrong.append("more than the budget is granted")
    if drawn:
        wrong.append("what was refused was drawn")
    spent = attempt(1.0, third)
    if spent is None or spent.spent.rho < third.rho:
        wrong.append("a cost was rounded down")
    event = PartitionEvent(Purpose.VALUES, ("values",), 100, 100, Fraction(1, 10**9))
    with contextlib.suppress(BudgetExceeded):
        Budget(1.0, Fraction(1, 10**10)).release([event], lambda: [()])
        wrong.append("more than the share of delta is granted")
    return wrong


def discovery() -> list[str]:
    """Values of a single row pass as rarely as charged: within seven standard deviations."""
    values, delta = [f"{k:06}" for k in range(200_000)], Fraction(1, 100)
    event = PartitionEvent(Purpose.VALUES, ("values",), 4, least_threshold(4, delta), delta)
    mechanisms = Mechanisms(Budget(1.0, 2 * delta), SystemEntropy())
    ones = np.ones(len(values), dtype=np.int64)
    passed = len(discover_values(mechanisms, event, values, ones, len(values))) / len(values)
    limit = float(delta) + 7 * math.sqrt(float(delta) / len(values))
    return [] if passed <= limit else ["values of a single row pass too often"]


def entropy() -> list[str]:
    """System entropy never repeats a word: not in another source, nor on both sides of a fork."""
    source = SystemEntropy()
    before = np.concatenate([SystemEntropy().words(4), source.words(3)])
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, source.words(16).tobytes())
        os._exit(0)
    here = source.words(16)
    os.waitpid(child, 0)
    there = np.frombuffer(os.read(reading, 256), dtype=np.uint64)
    os.close(reading)
    os.close(writing)
    every = [before, here, there]
    return [] if np.unique(np.concatenate(every)).size == 4 + 3 + 16 + 16 else ["a word came twice"]


class _Interrupted(Exception):
    """Stands for a crash."""


def retry() -> list[str]:
    """A run that is stopped and resumed hands out again what it had drawn."""
    domain = SCHEMA.domain()
    rng = np.random.default_rng(0)
    table = CodedTable.from_codes(domain, [rng.integers(0, n, 100) for n in domain.sizes])
    workload = resolve_queries(2, domain).marginals()

    def attempt(path, resume, stop_after):
        calls = []

        def observe(call):
            calls.append(call)
            if len(calls) == stop_after:
                raise _Interrupted

        book, request = LedgerBook(path), {"job": "loop"}
        if resume:
            ledger = book.resume(request, "the same table")
        else:
            ledger = book.reserve(request, "the same table", Cost.within(1.0))
        try:
            mechanisms = Mechanisms(ledger, SystemEntropy(), observe)
            run_loop(mechanisms.table(MarginalCounter(table)), workload, mechanisms, 1.0)
            ledger.finish()
        except _Interrupted:
            ledger.leave()
        return calls

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ledger.db"
        LedgerBook.create(path, Cost.within(1.0), {"rho": 1.0}).close()
        before = attempt(path, False, 7)
        try:
            after = attempt(path, True, math.inf)
        except LedgerError as error:
            return [f"the run cannot be resumed: {error}"]
    same = all(
        one.event == other.event and np.array_equal(one.output, other.output)
        for one, other in zip(before, after)
    )
    wrong = [] if same else ["what was drawn before was drawn again"]
    if len(after) <= len(before) or Cost.of(c.event for c in after).rho > 1:
        wrong.append("the resumed run did not finish inside its budget")
    return wrong


CANARY = "c4n4ry"
CANARY_ROWS = {"x": 7919, "y": 1013}
"""Rows by value; these numbers and their sum are looked for wherever something is written."""


def canary() -> list[str]:
    """Neither a cell nor a count of the private table shows up in anything that is written."""
    columns = [
        {"name": "a", "type": "categorical", "values": list(CANARY_ROWS), "catch_all": "other"},
        {"name": "b", "type": "integer", "min": 0, "max": 4},
    ]
    strict = [columns[0] | {"catch_all": None}, columns[1]]
    cells = [v for v, n in CANARY_ROWS.items() for _ in range(n)] + [CANARY] * 3
    numbers = {str(n) for n in (*CANARY_ROWS.values(), len(cells))}
    with tempfile.TemporaryDirectory() as name, quick_tables(), contextlib.chdir(name):
        Path("t.csv").write_text("a,b\n" + "".join(f"{v},{k % 5}\n" for k, v in enumerate(cells)))
        for schema, described in (("s.json", columns), ("strict.json", strict)):
            Path(schema).write_text(json.dumps({"version": 1, "columns": described}))
        budget = ["--rho", "0.001", "--insecure-seed", "3"]
        common = ["t.csv", "--schema", "s.json", *budget]
        words = _said("synthesize", *common, "--out", "o.csv", "--release", "r.zip")
        words += _said("answer", *common, "--ways", "2", "--out", "a.csv")
        words += _said("synthesize", "t.csv", "--schema", "strict.json", *budget, "--out", "n.csv")
        made = [Path(path).read_text() for path in ("o.csv", "a.csv")]
        with zipfile.ZipFile("r.zip") as archive:
            made += [archive.read(member).decode("latin-1") for member in archive.namelist()]
    wrong = ["a cell is written"] if any(CANARY in text for text in (words, *made)) else []
    told = words.replace(",", "")
    return wrong + [f"the count {n} is written" for n in sorted(numbers) if n in told]


def _said(*arguments) -> str:
    """All that a command prints and logs."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    handler.addFilter(lambda record: not record.name.startswith("numba"))  # which compiles code
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
            main(list(arguments))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return heard.getvalue()


def recorded_alike() -> list[str]:
    """One and two threads draw the same under a test seed."""
    domain = SCHEMA.domain()
    rng = np.random.default_rng(0)
    table = CodedTable.from_codes(domain, [rng.integers(0, n, 300) for n in domain.sizes])
    workload = resolve_queries(2, domain).marginals()
    outputs = []
    for workers in (1, 2):
        recorder = Recorder(Budget(1.0), InsecureSeed(0))
        run_loop(recorder.table(MarginalCounter(table)), workload, recorder, 1.0, workers=workers)
        outputs.append([np.asarray(call.output).tolist() for call in recorder.calls])
    return [] if outputs[0] == outputs[1] else ["the draws depend on the number of threads"]


def cells_apart() -> list[str]:
    """Tables whose rows are coded otherwise beside a row with a cell of another kind."""
    schema = Schema.parse(
        {
            "version": 1,
            "columns": [
                {"name": "a", "type": "categorical", "values": ["7", "7.0", "x"]},
                {
                    "name": "b", "type": "numeric", "edges": [0, 2, 500, 2000], "missing": ["?"],
                    "decimal": ",", "thousands": ".", "outside": "missing",
                },
            ],
        }
    )  # fmt: skip
    rows = [(7.0, "1.234"), (7, "1,5")]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for ending, write in (("xlsx", _sheet), ("db", _database)):
            alone, beside = (Path(folder) / f"{name}.{ending}" for name in ("alone", "beside"))
            write(alone, rows)
            write(beside, [*rows, ("x", "1.5")])
            codes = [
                [column[: len(rows)].tolist() for column in read_table(path, schema).columns]
                for path in (alone, beside)
            ]
            if codes[0] != codes[1] or codes[0] != [[0, 0], [2, 0]]:
                wrong.append(f"{ending}: {codes}")
    return wrong


def _sheet(path: Path, rows: list[tuple]) -> None:
    book = openpyxl.Workbook()
    for row in (("a", "b"), *rows):
        book.active.append(row)
    book.save(path)


def _database(path: Path, rows: list[tuple]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a, b)")
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)
        database.commit()


def owners() -> list[str]:
    """Counts and scores are measured by the budget that they belong to, and by no other."""
    owner, other = Budget(1.0), Mechanisms(Budget(10**6), InsecureSeed(0))
    query = LinearQuery(Purpose.STRATEGY, ("a",), (Identity(1),))
    counts = PrivateCounts(np.array([7]), owner)
    uses = {
        "counts": lambda: other.measure([Measurement(query, counts, Fraction(1))]),
        "scores": lambda: other.select(PrivateScores(np.array([7]), owner, 1), 1.0),
    }
    found = []
    for what, use in uses.items():
        with contextlib.suppress(InputError):
            use()
            found.append(f"another budget measures {what}")
    return found
