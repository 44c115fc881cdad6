"""Checks of the wiring: each goes through the entry points as callers have them.

Every one returns what is wrong, nothing where all is well. What is checked of noise fails by
chance less than once in 10⁹ runs.
"""

import datetime as dt
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from functools import partial
from itertools import chain, count, islice, product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa

import adaptive_qs
from adaptive_qs.audit.audit import Batch, Synthesis, least_memory
from adaptive_qs.audit.replay import Replayer, squared_distance
from adaptive_qs.audit.tables import FORMS, Types
from adaptive_qs.errors import AdaptiveQsError, BudgetExceeded, DataError, InputError
from adaptive_qs.generate.rows import SynthesisSettings
from adaptive_qs.privacy.budget import Budget, float_above
from adaptive_qs.privacy.events import Cost, GaussianEvent, Purpose, Transcript
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, SystemEntropy
from adaptive_qs.run import states
from adaptive_qs.run.budget import Limits
from adaptive_qs.table.schema import Schema

from ..audit import recompute
from .checks import quick_tables
from .entries import (
    DECLARED,
    ENTRIES,
    RHO,
    SCHEMAS,
    SYNTHESIS,
    Watched,
    copied,
    new_ledger,
    opened,
    rows,
    watch,
)
from .mutant import wrapped

ROWS = 240
STOPPED = 3
"""Draws after which runs are interrupted: one or two releases."""


class Folders:
    """New folders in a temporary one."""

    def __init__(self, path: Path) -> None:
        self._path, self._numbers = path, count()

    def __call__(self) -> Path:
        return self._path / str(next(self._numbers))


class in_folders:  # noqa: N801  (a decorator)
    """A check that gets folders and yields what is wrong."""

    def __init__(self, check: Callable[[Folders], Iterator[str]]) -> None:
        self.__name__, self.__doc__ = check.__name__, check.__doc__
        self._check = check

    def __call__(self) -> list[str]:
        """Everything that is wrong."""
        return self._found(None)

    def finds(self) -> bool:
        """Whether anything is; it stops at the first."""
        return bool(self._found(1))

    def _found(self, most: int | None) -> list[str]:
        with tempfile.TemporaryDirectory() as name:
            return list(islice(self._check(Folders(Path(name))), most))


def _each() -> Iterator[tuple[str, str, dict]]:
    for entry in ENTRIES:
        for name, schema in SCHEMAS.items():
            yield f"{entry}, {name}", entry, schema


@in_folders
def entropy_handed(folder: Folders) -> Iterator[str]:
    """Noise comes from the operating system, or from the seed that was asked for and is told."""
    for where, entry, schema in _each():
        table = rows(ROWS)
        ledger = new_ledger(folder())
        stopped = watch(entry, table, folder(), schema, ledger=ledger, stop_after=STOPPED)
        runs = {
            "in memory": [watch(entry, table, folder(), schema) for _ in range(2)],
            "on a ledger": [
                watch(entry, table, folder(), schema, ledger=copied(fresh, folder()))
                for fresh in [new_ledger(folder())] * 2
            ],
            "resumed": [
                watch(entry, table, folder(), schema, ledger=copied(ledger, folder()), resume=True)
                for _ in range(2)
            ],
        }
        for how, pair in runs.items():
            kept = len(_kept(ledger)) if how == "resumed" else 0
            for run in [*pair, *([stopped] if how == "resumed" else [])]:
                for fault in _insecure(run, run is stopped):
                    yield f"{where}, {how}: {fault}"
            if _alike(*pair, kept):
                yield f"{where}, {how}: the same noise again"
        path = new_ledger(folder())
        seeded = watch(entry, table, folder(), schema, ledger=path, insecure_seed=5)
        again = watch(entry, table, folder(), schema, insecure_seed=5)
        if seeded.course != again.course or not _alike(seeded, again, 0):
            yield f"{where}: the seed does not decide the noise"
        if [type(source) for _, source in seeded.handed] != [InsecureSeed]:
            yield f"{where}: the seed is not handed over"
        if seeded.manifest["entropy"] != "insecure seed" or not _said_insecure(path):
            yield f"{where}: a seed is not told"


def _insecure(run: Watched, stopped: bool) -> Iterator[str]:
    if (run.error is not None) is not stopped:
        yield f"ended by {run.error!r}"
    if [type(source) for _, source in run.handed] != [SystemEntropy]:
        yield "noise does not come from the operating system"
    if not stopped and run.manifest["entropy"] != "operating system CSPRNG":
        yield "the release says that noise comes from elsewhere"


def _said_insecure(ledger: Path) -> bool:
    with opened(ledger) as book:
        return all(run.insecure for run in book.runs())


def _alike(one: Watched, other: Watched, kept: int) -> bool:
    """Whether draws after the first ``kept`` are the same in both; no two should be."""
    pairs = list(zip(one.calls, other.calls))[kept:]
    for a, b in pairs:
        counts = isinstance(a.event, GaussianEvent) and a.event == b.event
        if counts and a.inputs.shape == b.inputs.shape:
            same = np.asarray(a.output - a.inputs) == np.asarray(b.output - b.inputs)
            spread = math.log(3.5 * max(1.0, float(a.event.noise_variance) ** 0.5))
            if same.all() and same.size * spread > 25:
                return True
    return False


def _kept(ledger: Path) -> tuple:
    """Events that a ledger keeps of its first run."""
    with opened(ledger) as book:
        return book.runs()[0].events


@in_folders
def charged_once(folder: Folders) -> Iterator[str]:
    """The ledger holds one run, whose charges are all that was drawn, and the release states them.

    Also for a run that is interrupted and resumed, which hands out again what it had drawn.
    """
    for where, entry, schema in _each():
        table, fresh = rows(ROWS), new_ledger(folder())
        begun = copied(fresh, folder())
        stopped = watch(entry, table, folder(), schema, ledger=begun, stop_after=STOPPED)
        with opened(begun) as book:
            (state,) = book.runs()
            if state.state != "open" or book.held != state.reserved:
                yield f"{where}: budget is given back although something was drawn"
        runs = {
            "fresh": watch(entry, table, folder(), schema, ledger=fresh),
            "resumed": watch(entry, table, folder(), schema, ledger=begun, resume=True),
        }
        if runs["resumed"].course[:STOPPED] != stopped.course:
            yield f"{where}: what was drawn before is drawn again"
        for how, path in (("fresh", fresh), ("resumed", begun)):
            for fault in _unpaid(runs[how], path, schema is not DECLARED):
                yield f"{where}, {how}: {fault}"
        alone = watch(entry, table, folder(), schema)
        for fault in _unpaid(alone, None, schema is not DECLARED):
            yield f"{where}, in memory: {fault}"


def _unpaid(run: Watched, ledger: Path | None, learns: bool) -> Iterator[str]:
    if run.error is not None:
        yield f"ended by {run.error!r}"
        return
    cost = Cost.of(run.events)
    if len(run.handed) != 1:
        yield "there is more than one budget"
    if any(cost.fits(given.limit) is False or given.limit.rho != RHO for given, _ in run.handed):
        yield "more is spent than was asked for"
    if run.manifest["rho_spent"] < float_above(cost.rho) * (1 - 1e-12):
        yield "the release states less than was spent"
    stated = sum(fact["rho_units"] for fact in run.manifest["facts"])
    if stated != cost.rho_units:
        yield "the release does not state the basis of everything that was drawn"
    told = [f["columns"] for f in run.manifest["facts"] if f["kind"] == "values" and f["rho_units"]]
    learnt = [e.columns for e in run.events if e.purpose in (Purpose.BINS, Purpose.VALUES)]
    if set(chain(*told)) != set(chain(*learnt)):
        yield "the release does not state which columns were learnt"
    purposes = {event.purpose for event in run.events}
    if learns is not (purposes >= {Purpose.BINS, Purpose.VALUES}):
        yield "bins and values are not paid for"
    if ledger is None:
        return
    with opened(ledger) as book:
        states = book.runs()
        if len(states) != 1 or states[0].state != "finished":
            yield "the ledger has not one finished run"
        if list(states[0].events) != run.events or states[0].spent != cost or book.held != cost:
            yield "the ledger was charged for something else"


@in_folders
def filtered(folder: Folders) -> Iterator[str]:
    """A loop that forgets what exact accounting adds to the cost of its choices is stopped.

    Wherever the budget is kept; its charges are within zCDP. A loop that does not is not stopped,
    and releases charges that other code finds within the μ that is stated. Triples are chosen here,
    after all pairs were measured together.
    """
    careless = mock.patch("adaptive_qs.loop.budget.choice_cost", lambda rho, _: rho)
    for entry in SYNTHESIS:
        fresh = new_ledger(folder())
        begun = copied(fresh, folder())
        watch(entry, rows(ROWS), folder(), ways=3, ledger=begun, stop_after=STOPPED)
        for how, given in {
            "in memory": {},
            "on a ledger": {"ledger": fresh},
            "resumed": {"ledger": begun, "resume": True},
        }.items():
            kept = {**given}
            if "ledger" in given:
                kept["ledger"] = copied(given["ledger"], folder())
            with careless:
                error = watch(entry, rows(ROWS), folder(), ways=3, **kept).error
            if "that exact accounting has left" not in str(error):
                yield f"{entry}, {how}: more than exact accounting allows is granted"
            run = watch(entry, rows(ROWS), folder(), ways=3, **given)
            if run.error is not None:
                yield f"{entry}, {how}: ended by {run.error!r}"
                continue
            records = Transcript(events=tuple(run.events)).model_dump(mode="json")["events"]
            if recompute.filter_problems(run.manifest, records):
                yield f"{entry}, {how}: the charges exceed the mu that is stated"
    narrow = GaussianEvent(Purpose.ROWS, (), 18, 18)
    with suppress(BudgetExceeded):
        Budget(0.9, filtered=True).release([narrow], lambda: [np.zeros(1, np.int64)])
        yield "narrow noise is granted at the price of wide noise"


OTHERWISE = {
    "another budget": {"rho": RHO / 2},
    "another learning share": {"learning_share": 0.2},
    "a noise seed": {"insecure_seed": 1},
    "another schema": {"schema": "other"},
    "another workload": {"ways": 1},
}


@in_folders
def resumed_as_begun(folder: Folders) -> Iterator[str]:
    """A run goes on with the same table and the same request only."""
    with mock.patch("adaptive_qs.table.read.FRAME_ROWS", 16):
        yield from _resumed_otherwise(folder)


def _resumed_otherwise(folder: Folders) -> Iterator[str]:
    for where, entry, schema in _each():
        table, ledger = rows(ROWS), new_ledger(folder())
        watch(entry, table, folder(), schema, ledger=ledger, stop_after=STOPPED)
        wrong = json.loads(json.dumps(schema))
        wrong["columns"][0]["catch_all"] = "another"
        for what, change in OTHERWISE.items():
            if "learning_share" in change and schema is DECLARED:
                continue
            given = {"schema": schema, **change}
            if given["schema"] == "other":
                given["schema"] = wrong
            run = watch(entry, table, folder(), **given, ledger=ledger, resume=True)
            if run.handed or run.error is None:
                yield f"{where}: resumed with {what}"
        tables = {
            "a row more": rows(ROWS + 1),
            "a row less": table[:-1],
            "another last cell": table.assign(c=[*table["c"][:-1], not table["c"].iloc[-1]]),
            "another cell in the middle": table.assign(b=[*table["b"][:120], 9, *table["b"][121:]]),
        }
        for what, other in tables.items():
            run = watch(entry, other, folder(), schema, ledger=ledger, resume=True)
            if run.handed or run.error is None:
                yield f"{where}: resumed with {what}"
    keys = [new_ledger(folder()) for _ in range(2)]
    for ledger in keys:
        watch("answer", rows(ROWS), folder(), ledger=ledger, stop_after=1)
    found = []
    for ledger in keys:
        with opened(ledger) as book:
            found.append(book.input(1))
    if found[0] == found[1]:
        yield "the hash of the table has no key"


WIDE = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["x", "y", "z"], "catch_all": "other"},
        {"name": "b", "type": "integer", "min": 0, "max": 9, "outside": "clip"},
        {"name": "c", "type": "boolean"},
        {"name": "d", "type": "integer", "min": 0, "max": 2},
    ],
}
RANGES = {"version": 1, "parts": [{"attributes": [["b", "d"], ["b"], ["d"]], "queries": "range"}]}
MUCH = 2.0
"""A budget that is enough for more rounds than the ceiling of cells allows."""
FEW = 3
"""Rows of a table that is no neighbour of any other here."""


def _wide(number: int) -> pd.DataFrame:
    return rows(number).assign(d=np.arange(number) * 5 % 3)


@in_folders
def ceilings(folder: Folders) -> Iterator[str]:
    """At the ceilings, any table leads to the same bytes when the draws are the same.

    The ceiling of memory is the least that the plan accepts, and the table has as many rows as fit.
    One of three rows is no neighbour of it, and inputs may differ as they like; but what is
    measured, and how, follows from what was released. So it does with a row more than fits, which
    is refused where codes have to stay in memory.
    """
    with small_process():
        tightest = {synthesis: _tightest(synthesis) for synthesis in (True, False)}
        for entry in ENTRIES:
            memory, most = tightest[entry in SYNTHESIS]
            run = partial(_run_wide, entry, folder)
            recorded = run(most, memory)
            if entry in SYNTHESIS and recorded.course == run(most, 2**31, recorded).course:
                yield f"{entry}: the ceiling is not reached"
            for number in (most - 1, most + 1, FEW):
                other = run(number, memory, recorded)
                for fault in _differences(recorded, other, number != FEW):
                    yield f"{entry}, {number} rows: {fault}"
            over = run(most + 1, memory, engine="memory")
            if over.handed or over.error is None:
                yield f"{entry}: a row more than fits is measured"


def _run_wide(
    entry: str,
    folder: Folders,
    number: int,
    memory: int,
    recorded: Watched | None = None,
    engine: str = "auto",
) -> Watched:
    calls = None if recorded is None else recorded.calls
    ways = 3 if entry in SYNTHESIS else RANGES  # whose strategies have a grid
    options = {"rho": MUCH, "max_memory": memory, "engine": engine}
    return watch(entry, _wide(number), folder(), WIDE, ways, calls, **options)


@contextmanager
def small_process() -> Iterator[None]:
    """Plan as if the program took no memory of its own: what is left to plan is rows and cells."""
    few = partial(SynthesisSettings, fit_rows=1)
    users = ("run.memory", "answering.plan", "run.budget")
    with ExitStack() as stack:
        for user in users:
            stack.enter_context(mock.patch(f"adaptive_qs.{user}.PROCESS_BYTES", 0))
        stack.enter_context(mock.patch("adaptive_qs.answering.plan.TABLE_BYTES", 0))
        stack.enter_context(mock.patch("adaptive_qs.run.memory.SynthesisSettings", few))
        stack.enter_context(mock.patch("adaptive_qs.run.memory.PAGE_CODES", 1))
        stack.enter_context(mock.patch("adaptive_qs.run.memory.KEPT_CELLS", 1))
        yield


def _tightest(synthesis: bool) -> tuple[int, int]:
    """The least memory in which the wide table can be planned for, and the rows that fit then."""
    schema = Schema.parse(WIDE)
    if synthesis:
        plan = Synthesis.of(schema, 3, MUCH).at_ceiling().limits
        return plan.max_memory_bytes, plan.most_rows

    def planned(memory: int) -> Limits:
        return Batch.of(schema, RANGES, MUCH, max_memory=memory).limits

    least = least_memory(planned, 2**31)
    return least, planned(least).most_rows


def _differences(recorded: Watched, other: Watched, neighbour: bool) -> Iterator[str]:
    if other.error is not None or other.course != recorded.course:
        yield f"another course, {other.error!r}"
        return
    if other.files != recorded.files:
        names = [n for n, content in recorded.files.items() if other.files.get(n) != content]
        yield f"other bytes in {', '.join(names)}"
    for one, two in zip(recorded.calls, other.calls) if neighbour else ():
        if isinstance(one.event, GaussianEvent) and (
            squared_distance(one.inputs, two.inputs) > one.event.squared_sensitivity
        ):
            yield f"{one.event.label} differs by more than was charged"


SIZES = {"a": 3, "b": 4, "c": 3, "d": 4, "e": 12}
FIVE = {
    "version": 1,
    "columns": [
        {"name": name, "type": "integer", "min": 0, "max": size - 1} for name, size in SIZES.items()
    ],
}


@in_folders
def independent_noise(folder: Folders) -> Iterator[str]:
    """Every cell has noise of its own, whatever the number of attributes."""
    rng = np.random.default_rng(0)
    cells = rng.dirichlet(np.full(math.prod(SIZES.values()), 0.05))
    codes = np.unravel_index(rng.choice(cells.size, 3_000, p=cells), tuple(SIZES.values()))
    table = pd.DataFrame(dict(zip(SIZES, codes)))
    for entry in ENTRIES:
        tested: set[int] = set()
        settings = [(5, 1e-4), (5, 3.0)] if entry in SYNTHESIS else [([1, 2, 3, 4, 5], 1e-4)]
        for ways, rho in settings:
            run = watch(entry, table, folder(), FIVE, ways, rho=rho, max_memory=2**31)
            if run.error is not None:
                yield f"{entry}: ended by {run.error!r}"
            for call in run.calls:
                if isinstance(call.event, GaussianEvent):
                    noise = call.output - call.inputs
                    spread = math.log(3.5 * float(call.event.noise_variance) ** 0.5)
                    degree = len(call.event.columns)
                    enough, repeats = _repetitions(noise, spread)
                    tested |= {degree} if enough else set()
                    for what in repeats:
                        yield f"{entry}: noise of {call.event.label} {what}"
        if missed := set(range(1, 6)) - tested:
            yield f"{entry}: no noise of {missed} attributes was long enough to tell"


def _repetitions(noise: np.ndarray, spread: float) -> tuple[bool, list[str]]:
    """Whether repetitions would show along every axis, and along which there are some.

    Two draws agree with a probability of at most exp(-spread), spread = ln(2 √π σ).
    """
    found, enough = [], noise.ndim > 0
    for axis, size in enumerate(noise.shape):
        slices = np.moveaxis(noise, axis, 0).reshape(size, -1)
        if size > 1 and slices.shape[1] * (size - 1) * spread > 25:
            if (slices == slices[0]).all():
                found.append(f"is one along axis {axis}")
        elif size > 1:
            enough = False
        if slices.shape[1] * spread > 25 + 2 * math.log(size):
            same = len(np.unique(slices, axis=0)) < size
            found += [f"is repeated along axis {axis}"] * same
    return enough, found


def read_once() -> list[str]:
    """Answers are read once; a second reading is refused and draws nothing."""
    wrong = []
    for schema in SCHEMAS.values():
        made = []

        def make(ledger, entropy, made=made):
            made.append(Mechanisms(ledger, entropy))
            return made[-1]

        with mock.patch.object(states, "Mechanisms", make):
            answers = adaptive_qs.answer(rows(ROWS), schema, 1, rho=RHO, workers=1)
            first = answers.to_arrow()
            spent = [mechanisms.ledger.spent for mechanisms in made]
            with suppress(AdaptiveQsError):
                if answers.to_arrow() != first:
                    wrong.append("a second reading of the answers draws again")
        if [mechanisms.ledger.spent for mechanisms in made] != spent:
            wrong.append("a second reading of the answers spends")
    return wrong


@in_folders
def refitted(folder: Folders) -> Iterator[str]:
    """A second fit is another run, on the table that it was given, with noise of its own."""
    path = folder()
    path.mkdir(parents=True)
    model = adaptive_qs.Synthesizer(rho=2.0, workers=1)
    totals = []
    for number in (100, 900, 900):
        model.fit(rows(number), schema=DECLARED)
        totals.append(model.release_.num_rows)
        model.save(path / f"{len(totals)}.zip")
    if not abs(totals[0] - 100) < 300 < abs(totals[1] - 100):
        yield "the second fit is about the first table"
    if (path / "2.zip").read_bytes() == (path / "3.zip").read_bytes():
        yield "the second fit has the noise of the first"


TYPES = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["true", "false"], "catch_all": "other"},
        {"name": "b", "type": "categorical", "values": ["1", "2", "3"], "catch_all": "other"},
        {"name": "d", "type": "date", "min": "2020-01-01", "max": "2020-12-31",
         "granularity": "month", "outside": "missing", "missing": [""]},
        {"name": "n", "type": "numeric", "min": 0, "max": 10, "bins": 5, "outside": "missing",
         "missing": [""]},
    ],
}  # fmt: skip
TEXTS = [
    [("true", "false")[k % 2], str(k % 3 + 1), f"2020-0{k % 9 + 1}-03", f"{k % 8}.5"]
    for k in range(150)
]
STRANGE = {
    "text": ["unknown", "unknown", "2020-05-06", "3.5"],
    "booleans": [True, True, "2020-05-06", 3.5],
    "integers": [1, 2, dt.date(2020, 5, 6), 3],
    "numbers": [1.0, 2.0, dt.date(2020, 5, 6), "3"],
    "parts": [0.5, 2.5, dt.datetime(2020, 5, 6), 3],
    "nothing": ["true", "1", None, None],
    "dates": [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 3), dt.datetime(2020, 5, 6, 7), 3.5],
    "not a number": ["true", "1", None, float("nan")],
}
"""Rows of objects of other types than the rest of a column has."""
REFUSABLE = {
    "decimals": [Decimal("0.5"), Decimal(2), dt.date(2020, 5, 6), Decimal("3.5")],
    "bytes": [b"true", b"1", dt.date(2020, 5, 6), 3.5],
    "lists": [["true"], "1", dt.date(2020, 5, 6), 3.5],
}
"""Rows of objects that may be refused, together with the table."""


@in_folders
def every_form(folder: Folders) -> Iterator[str]:
    """Neighbouring tables in every form, also those with an extra row of another type."""
    schema = Schema.parse(TYPES)
    for form, make in FORMS.items():
        tables = []
        for texts in (TEXTS, [*TEXTS, ["other", "7", "", ""]]):
            place = folder()
            place.mkdir()
            types = Types(schema, TEXTS, [["other", "7", "", ""]])
            tables.append(make(texts, types, place))
        yield from (f"{form}: {fault}" for fault in _told_apart(folder, *tables))
    objects = Types(schema, TEXTS).objects(TEXTS)
    typed = objects.astype({"a": "boolean", "b": "Int64", "n": "Float64", "d": "datetime64[ns]"})
    frames = {
        "nullable": typed,
        "with a time zone": typed.assign(d=typed["d"].dt.tz_localize("Europe/Berlin")),
        "strings": pd.DataFrame(TEXTS, columns=schema.names).astype("string"),
        "categories": pd.DataFrame(TEXTS, columns=schema.names).astype("category"),
    }
    for what, frame in frames.items():
        yield from (f"{what}: {fault}" for fault in _told_apart(folder, frame, frame[:-1]))
    neighbours = {}
    for what, row in {**STRANGE, **REFUSABLE}.items():
        more = objects.astype(object)
        more.loc[len(more)] = row
        neighbours[f"a row of {what}"] = more.astype(object)
    refusable = {f"a row of {what}" for what in REFUSABLE}
    for fault in _all_told_apart(folder, objects, neighbours, refusable):
        yield f"objects, and {fault}"


def _told_apart(folder: Folders, here: Any, there: Any) -> Iterator[str]:
    return _all_told_apart(folder, here, {"its neighbour": there}, set())


def _all_told_apart(
    folder: Folders, here: Any, neighbours: dict[str, Any], refusable: set[str]
) -> Iterator[str]:
    """Each neighbour against one recorded run, but for those that are refused where they may."""
    for entry in ("Synthesizer.fit", "answer"):
        recorded = watch(entry, here, folder(), TYPES, 1)
        if recorded.error is not None:
            yield f"{entry}: ended by {recorded.error!r}"
        for what, there in neighbours.items():
            other = watch(entry, there, folder(), TYPES, 1, recorded.calls)
            if what in refusable and isinstance(other.error, DataError) and not other.handed:
                continue
            faults = _differences(recorded, other, True)
            yield from (f"{what}: {entry}: {fault}" for fault in faults)


FRAMES = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "values": ["z", "y", "x"], "catch_all": "other"},
        {"name": "b", "type": "integer", "min": 0, "max": 5, "outside": "clip"},
    ],
}


@in_folders
def frames_in_and_out(folder: Folders) -> Iterator[str]:
    """Categories and types of the private frame decide neither codes nor the sampled frame."""
    table = pd.DataFrame({"a": list("xyzy") * 30, "b": [1, 2, 3] * 40})
    more = pd.concat([table, pd.DataFrame({"a": ["new"], "b": [9]})], ignore_index=True)
    here, there = (f.astype({"a": "category", "b": "Int64"}) for f in (table, more))
    recorded = watch("Synthesizer.fit", here, folder(), FRAMES)
    other = watch("Synthesizer.fit", there, folder(), FRAMES, recorded=recorded.calls)
    yield from _differences(recorded, other, True)
    sampled = []
    for frame in (here, there):
        made = partial(Replayer, recorded=recorded.calls)
        with quick_tables(), mock.patch.object(states, "Mechanisms", made):
            sample = adaptive_qs.Synthesizer(rho=RHO).fit(frame, schema=FRAMES).sample(seed=1)
        sampled.append([repr(sample[name].dtype) for name in sample] + [sample.to_csv()])
    if sampled[0] != sampled[1]:
        yield "the sampled frames differ"


BLOCKS = {
    "adaptive_qs.table.formats.BLOCK_BYTES": ((61, 200), "Synthesizer.fit", ("CSV",)),
    "adaptive_qs.table.formats.BATCH_ROWS": ((1, 2, 3), "Synthesizer.fit", ("Parquet",)),
    "adaptive_qs.privacy.counts.BLOCK_VALUES": ((1, 2, 3), "answer", ("frame",)),
    "adaptive_qs.learn.gather._WAITING_ROWS": ((1, 3), "answer", ("CSV",)),
    "adaptive_qs.answering.measure.BATCH_ROWS": ((1, 2, 3), "answer", ("CSV",)),
}
"""Sizes of blocks between a private table and what is published: tiny ones, and where they count.

Blocks of noise, of releases and of synthetic tables: tests/table/test_blocks.py.
"""
LEARNING = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "categorical", "private_values": 3, "catch_all": "other"},
        {"name": "b", "type": "integer", "private_bins": 4, "min": 0, "max": 9},
        {"name": "n", "type": "numeric", "private_bins": 3, "decimals": 1},
    ],
}


def _learning_table() -> pd.DataFrame:
    table = rows(47).drop(columns="c")
    return table.assign(n=[k * 3 % 11 / 2 for k in range(47)])


@in_folders
def tiny_blocks(folder: Folders) -> Iterator[str]:
    """The size of no block shows in what is measured or written."""
    table, place = _learning_table(), folder()
    place.mkdir(parents=True)
    sources = {
        "CSV": place / "t.csv",
        "Parquet": place / "t.parquet",
        "frame": pa.Table.from_pandas(table),
    }
    table.to_csv(sources["CSV"], index=False)
    table.to_parquet(sources["Parquet"], index=False, row_group_size=20)
    for entry in ("Synthesizer.fit", "answer"):
        run = {
            form: watch(entry, source, folder(), LEARNING, 2, insecure_seed=3)
            for form, source in sources.items()
        }
        for form in sources:
            if run[form].error is not None or run[form].files != run["CSV"].files:
                yield f"{entry}: {form} is read as something else than CSV, {run[form].error!r}"
        for constant, (sizes, where, forms) in BLOCKS.items():
            for size, form in product(sizes, forms) if where == entry else ():
                with mock.patch(constant, size):
                    cut = watch(entry, sources[form], folder(), LEARNING, 2, insecure_seed=3)
                if cut.error is not None or cut.files != run[form].files:
                    yield f"{entry}, {form}: {constant} of {size} shows"


CHECKS = (
    entropy_handed,
    charged_once,
    resumed_as_begun,
    ceilings,
    independent_noise,
    read_once,
    refitted,
    every_form,
    frames_in_and_out,
    tiny_blocks,
)
"""All of them."""


def _spends(work: Callable[[], object]) -> bool:
    try:
        work()
    except InputError:
        return False
    return True


def _ended(child: int, spent: bool) -> bool:
    """Whether the child of a fork spent its budget; the child itself ends here."""
    if child == 0:
        os._exit(int(spent))
    return os.waitpid(child, 0)[1] != 0


def forks() -> list[str]:
    """A budget is spent in one process only, with a fork before its first charge or after it."""
    faults = []
    table = pd.DataFrame({"a": [0, 1, 2] * 40, "b": [0, 1] * 60})
    schema = Schema.parse({"a": 3, "b": 2})
    waiting = adaptive_qs.answer(table, schema, [1, 2], rho=1.0, workers=1)
    child = os.fork()
    spent = _spends(waiting.to_arrow)
    if _ended(child, spent):
        faults.append("a fork before the first charge spends the budget as well")
    if not spent:
        faults.append("after a fork the process itself is refused")

    children = []

    def draw(original: Callable[..., Any], *arguments: Any) -> Any:
        drawn = original(*arguments)
        if not children:
            children.append(os.fork())
        return drawn

    model = adaptive_qs.Synthesizer(rho=1.0, workers=1)
    with wrapped(Mechanisms, "_draw_counts", draw):
        spent = _spends(lambda: model.fit(table, schema=schema))
    if _ended(children[0], spent):
        faults.append("a fork during a run spends the rest of the budget as well")
    if not spent:
        faults.append("after a fork during a run the process itself is refused")
    return faults
