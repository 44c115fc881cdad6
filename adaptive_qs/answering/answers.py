"""The answers of one run: a stream that is read once, its rows in words, and its statement."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator
from scipy.special import ndtri

from adaptive_qs.answering.measure import SetAnswers, answer_sets
from adaptive_qs.answering.plan import Batch, BatchPlan
from adaptive_qs.arguments import as_number, shown
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError, ResourceExceeded, SpentNote
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, Fault, PhaseClock, reach
from adaptive_qs.privacy.accounting import compute_mu
from adaptive_qs.privacy.budget import Hex, Ledger, Place, float_above
from adaptive_qs.privacy.events import Cost, Event, GaussianEvent, Purpose
from adaptive_qs.release.bundle import (
    ANSWERS_MEMBER,
    digest_of_statement,
    is_from_interrupted_run,
    manifest_path,
    with_manifest,
)
from adaptive_qs.release.facts import ANSWERS, NonNegative, total_cost
from adaptive_qs.release.statement import MANIFEST, Loss, Statement, derive_fields
from adaptive_qs.run.budget import FinishedRun, PrivacyTarget
from adaptive_qs.run.job import Job, OpenBudget
from adaptive_qs.strategy.solution import Array
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.table.files import (
    NOT_PRIVATE,
    PRIVATE,
    STAMP_KEY,
    Stamp,
    check_new,
    stamp_path,
    stamped,
)
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import Formulas, check_formulas
from adaptive_qs.table.write import (
    CSV,
    check_table_path,
    escaped_names,
    find_escapes,
    table_format,
    write_batches,
)
from adaptive_qs.workload.file import workload_digest
from adaptive_qs.workload.matrices import Queries

# Queries in words, as Arrow arrays: no Python text is built for an answer to a product.

Texts = Callable[[int, int], pa.Array]
"""The texts of the queries from one position to another; each call goes on where the last ended."""

KEPT_TEXTS = 2**20
"""Texts of single families that are kept for the next attribute sets."""


class QueryTexts:
    """Words for the queries on the attributes of a schema.

    Args:
        schema: names the attributes and their codes.
        formulas: which texts are escaped, for spreadsheet programs.
    """

    def __init__(self, schema: Schema, formulas: Formulas = "keep") -> None:
        self._schema = schema
        self._formulas = formulas
        self._names = escaped_names(schema.names, formulas)
        self._codes: dict[int, tuple[str, ...]] = {}
        self._kept: dict[tuple[int, Queries], pa.Array] = {}

    def attributes(self, clique: Clique) -> str:
        """The set of attributes, such as "age x sex"."""
        return " x ".join(self._names[attribute] for attribute in clique)

    def queries(self, clique: Clique, queries: tuple[Queries, ...]) -> Texts:
        """The queries on a set of attributes, such as "age <= 39 and sex = Female".

        Args:
            clique: the attributes.
            queries: a product of families, or one joint family.
        """
        joint = len(queries) != len(clique)
        if joint or (len(queries) == 1 and queries[0].num_queries > KEPT_TEXTS):
            texts = self._labels(clique, queries[0])  # not worth keeping
            return lambda start, stop: pa.array(
                islice(texts, stop - start), pa.string(), size=stop - start
            )
        return _joined([self._of_axis(attribute, one) for attribute, one in zip(clique, queries)])

    def _of_axis(self, attribute: int, queries: Queries) -> pa.Array | _Passing:
        if queries.num_queries > KEPT_TEXTS:
            make = partial(self._labels, (attribute,), queries)
            return _Passing(make, queries.num_queries)
        key = (attribute, queries)
        if key not in self._kept:
            if sum(map(len, self._kept.values())) + queries.num_queries > KEPT_TEXTS:
                self._kept.clear()
            labels = self._labels((attribute,), queries)
            self._kept[key] = pa.array(labels, pa.string(), size=queries.num_queries)
        return self._kept[key]

    def _labels(self, clique: Clique, queries: Queries) -> Iterator[str]:
        names = tuple(self._names[attribute] for attribute in clique)
        return queries.labels(names, tuple(map(self._values, clique)))

    def _values(self, attribute: int) -> tuple[str, ...]:
        if attribute not in self._codes:
            column = self._schema.columns[attribute]
            replaced = find_escapes(column, self._schema, self._formulas)
            self._codes[attribute] = tuple(replaced.get(x, x) for x in column.labels_of_codes())
        return self._codes[attribute]


class _Passing:
    """Texts of a family of too many queries to be kept, made again for every round of them."""

    def __init__(self, make: Callable[[], Iterator[str]], count: int) -> None:
        self._make, self._count = make, count
        self._texts, self._made, self._last = make(), 0, ""

    def __len__(self) -> int:
        return self._count

    def take(self, positions: pa.Array) -> pa.Array:
        """The texts at positions that ascend, but for a new round."""
        asked = positions.to_numpy()
        changes = np.flatnonzero(np.diff(asked, prepend=-1))
        found = pa.array(map(self._at, asked[changes].tolist()), pa.string(), size=len(changes))
        times = np.diff(changes, append=len(asked))
        return found.take(pa.array(np.repeat(np.arange(len(changes)), times)))

    def _at(self, position: int) -> str:
        if position < self._made - 1:
            self._texts, self._made = self._make(), 0
        if position >= self._made:
            self._last = next(islice(self._texts, position - self._made, None))
            self._made = position + 1
        return self._last


def _joined(factors: list[pa.Array | _Passing]) -> Texts:
    shape = tuple(map(len, factors))

    def text(start: int, stop: int) -> pa.Array:
        if len(factors) == 1 and isinstance(factors[0], pa.Array):
            return factors[0].slice(start, stop - start)
        positions = np.unravel_index(np.arange(start, stop), shape)
        parts = [factor.take(pa.array(of)) for factor, of in zip(factors, positions)]
        return pc.binary_join_element_wise(*parts, " and ")

    return text


# Answers as Arrow record batches: the query in words, the estimate and its interval.
#
# Rows come in one order: by part of the workload, attribute set, and query.


BATCH_ROWS = 2**16
"""Rows of a batch: small attribute sets are gathered, large ones divided."""

COLUMNS = pa.schema(
    [
        ("attributes", pa.dictionary(pa.int32(), pa.string())),
        ("query", pa.string()),
        ("estimate", pa.float64()),
        ("standard_error", pa.float64()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
    ]
)
"""What every batch has; estimates, errors and bounds are in rows."""
REPEATING = ("attributes", "standard_error")
"""Columns with few distinct values."""
_Part = tuple[str, pa.Array, Array, Array]
"""Name, texts, estimates and variances of answers of one attribute set."""


def answer_batches(
    sets: Iterable[SetAnswers],
    schema: Schema,
    confidence: float = 0.95,
    formulas: Formulas = "keep",
) -> Iterator[pa.RecordBatch]:
    """Batches of at most ``BATCH_ROWS`` answers; memory is that of one batch.

    Args:
        sets: the answers, set by set.
        schema: names the attributes and their codes.
        confidence: probability with which each interval holds the true answer by itself.
        formulas: which values in the words of queries are escaped, for spreadsheet programs.

    Raises:
        InputError: the confidence is not between 0 and 1, or an answer is no number or has no
            variance because its strategy is too ill-conditioned.
    """
    half_width = interval_factor(confidence)
    texts = QueryTexts(schema, formulas)
    gathered: list[_Part] = []
    rows = 0
    for answers in sets:
        name = texts.attributes(answers.clique)
        _check_finite(name, answers)
        if not answers.first:
            words = texts.queries(answers.clique, answers.queries)
        start, total, first = 0, len(answers.estimates), answers.first
        while start < total:
            stop = min(total, start + BATCH_ROWS - rows)
            estimates, variances = answers.estimates[start:stop], answers.variances[start:stop]
            gathered.append((name, words(first + start, first + stop), estimates, variances))
            rows += stop - start
            start = stop
            if rows == BATCH_ROWS:
                yield _batch(gathered, half_width)
                gathered, rows = [], 0
    if gathered:
        yield _batch(gathered, half_width)


def _batch(gathered: list[_Part], half_width: float) -> pa.RecordBatch:
    names, texts, estimates, variances = zip(*gathered)
    answers = np.concatenate(estimates)
    errors = np.sqrt(np.concatenate(variances))
    margin = half_width * errors
    place = {name: position for position, name in enumerate(dict.fromkeys(names))}
    lengths = [len(part) for part in estimates]
    codes = np.repeat([place[name] for name in names], lengths).astype(np.int32)
    columns = [
        pa.DictionaryArray.from_arrays(codes, pa.array(place, pa.string())),
        pa.concat_arrays(texts),
        *map(pa.array, (answers, errors, answers - margin, answers + margin)),
    ]
    return pa.record_batch(columns, schema=COLUMNS)


def interval_factor(confidence: Any) -> float:
    """Standard errors on either side of an estimate, from the normal distribution.

    Raises:
        InputError: the confidence is not a number between 0 and 1.
    """
    chance = as_number(confidence)
    if chance is None or not 0 < chance < 1:
        raise InputError(
            f"confidence is {shown(confidence)}: give a number between 0 and 1, as 0.95"
        )
    return float(ndtri((1 + chance) / 2))


def _check_finite(name: str, answers: SetAnswers) -> None:
    """Refuse answers that are not numbers: they would be written as NaN."""
    variances = answers.variances
    sound = np.isfinite(answers.estimates).all() and np.isfinite(variances).all()
    if not (sound and (variances >= 0).all()):
        raise InputError(
            f"the answers on {name} have no finite variance: its queries are too nearly dependent "
            "for this mechanism, or too different in size: scale them alike or use mechanism "
            "gaussian"
        )


# The privacy statement of a batch of answers, for the sidecar.


class Charges(BaseModel):
    """Charges of equal purpose and parameters; the columns are those of the first of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    times: Annotated[int, Field(ge=1, le=2**62)]
    charge: Annotated[Event, Field(discriminator="mechanism")]

    @property
    def cost(self) -> Cost:
        """Of all of them."""
        one = Cost.of([self.charge])
        return Cost(self.times * one.rho_units, self.times * one.delta_units)


class AnswersManifest(Statement):
    """What a batch of answers states; its charges add up to its facts."""

    kind: Literal["answers"] = "answers"
    mechanism: str
    """The name of what was measured, as `plan` gives it."""
    workload: Hex
    """SHA-256 of what was asked."""
    queries: Annotated[int, Field(ge=1)]
    cost: Loss
    """Privacy cost β = 2ρ of He et al.: the budget."""
    expected_rmse: NonNegative
    """Planned without data (rows)."""
    lower_bound_rmse: NonNegative
    """No mechanism of the same kind has a smaller one (rows)."""
    charges: Annotated[tuple[Charges, ...], FailFast()]
    """Every charge, those with equal parameters together."""

    @property
    def charges_in(self) -> str:
        """The manifest itself."""
        return "the field charges of the manifest"

    @model_validator(mode="after")
    def _check_charges(self) -> Self:
        if sum((some.cost for some in self.charges), Cost()) != total_cost(self.facts):
            raise ValueError("the charges do not add up to the facts")
        if self.mu is not None and self.delta_spent:
            raise ValueError("mu is not that of the charges")
        return self


def statement_of_answers(
    plan: BatchPlan,
    target: PrivacyTarget,
    schema: Schema,
    events: Sequence[Event],
    stamp: Stamp,
    confidence: float,
    ledger: Place | None = None,
) -> AnswersManifest:
    """The statement of a finished batch.

    Where all noise is that of the plan, (ε, δ) follows from Gaussian DP; where bins or values were
    learnt as well, from zCDP.

    Args:
        plan: what was measured.
        target: the budget of the whole run, of which the plan's is what learning left.
        schema: with whatever was learnt.
        events: every charge, which ``ledger`` keeps, if there is one.
        stamp: whether the answers are private.
        confidence: of the intervals.

    Raises:
        ValueError: the charges exceed the target, or do not imply its (ε, δ).
    """
    gaussian = all(
        isinstance(event, GaussianEvent) and event.purpose is Purpose.STRATEGY for event in events
    )
    return AnswersManifest(
        **derive_fields(events, schema, ANSWERS, stamp, target.unit),
        rho=target.rho,
        epsilon=target.epsilon,
        delta=target.delta,
        accountant="Gaussian DP" if gaussian else "zCDP",
        mu=compute_mu(target.rho) if gaussian else None,
        settings={"confidence": confidence},
        ledger=ledger,
        mechanism=plan.choice.name,
        workload=workload_digest(plan.workload),
        queries=plan.queries,
        cost=target.cost,
        expected_rmse=plan.rmse,
        lower_bound_rmse=plan.lower_bound_rmse,
        charges=group_charges(events),
    )


def group_charges(events: Iterable[Event]) -> tuple[Charges, ...]:
    """The charges, counted by their parameters, in the order in which each kind came first."""
    groups: dict[tuple[Any, ...], list[Event]] = {}
    for event in events:
        kind = (type(event), *(vars(event) | {"columns": ()}).values())
        groups.setdefault(kind, []).append(event)
    return tuple(Charges(times=len(group), charge=group[0]) for group in groups.values())


# The answers of one run: a stream that can be read once, because reading it spends the budget.

FILE_BYTES = {False: 40, True: 120}
"""One answer in a file that is compressed, and in one of text."""
HELD_BYTES = 90
"""One answer in memory, with its words."""


def file_bytes(queries: int, path: str | Path) -> int:
    """About what a file of so many answers takes."""
    plain = table_format(path).is_text and not str(path).endswith(".gz")
    return queries * FILE_BYTES[plain]


def check_room(queries: int, path: str | Path) -> None:
    """Refuse a file of answers that the disk has no room for, before anything is spent.

    Raises:
        ResourceExceeded: it has not.
    """
    needed = file_bytes(queries, path)
    try:
        free = shutil.disk_usage(Path(path).resolve().parent).free
    except OSError:
        return  # whoever opens the file says why
    if needed > free:
        raise ResourceExceeded(
            f"{path}: {queries:,} answers take about {needed / 2**30:,.1f} GiB and the disk has "
            f"{free / 2**30:,.1f} GiB left: {FEWER_ANSWERS}"
        )


FEWER_ANSWERS = (
    "ask for prefixes instead of ranges, coarser bins or fewer attributes together, or write "
    ".parquet elsewhere"
)

LOST = SpentNote("part of the budget was spent and its answers are lost: count all of it as spent")


class Answers:
    """Answers to a workload, made while they are read.

    Everything has been checked by now; nothing has been spent. One pass over the batches, by
    iteration, :meth:`to_arrow`, :meth:`to_pandas` or :meth:`write`, spends the budget, measurement
    by measurement, each charged before its noise is drawn. There is no second pass.

    Rows come by part of the workload, attribute set and query, with the columns attributes, query,
    estimate (rows, unbiased), standard_error, lower and upper.

    Attributes:
        plan: the mechanism that was measured, on integers, with its expected errors.
        target: the budget of the whole run; the plan's is what learning bins and values left.
        insecure: whether the noise came from a seed, so that the answers are not private.
        stamp: says so in words.
        seconds: per phase, after the last answer.
    """

    def __init__(
        self,
        job: Job[Batch],
        plan: BatchPlan,
        schema: Schema,
        counter: MarginalCounter,
        begin: OpenBudget,
        clock: PhaseClock,
    ) -> None:
        self.plan = plan
        self.target = job.target
        self.insecure = job.options.insecure
        self.seconds: dict[str, float] = {}
        self.stamp: Stamp = NOT_PRIVATE if self.insecure else PRIVATE
        self._schema = schema
        self._counter: MarginalCounter | None = counter
        self._session = job.session
        limits = job.work.limits
        self._most_bytes = int(limits.max_memory_bytes * (1 - ROWS_SHARE)) - PROCESS_BYTES
        self._begin = begin
        self._ledger: Ledger | None = None
        self._clock = clock
        self._resumed = job.options.ledger if job.options.resume else None

    @property
    def closed(self) -> FinishedRun | None:
        """The run in its ledger once the answers are safe; None without a ledger."""
        return self._session.closed

    @property
    def ledger(self) -> tuple[Event, ...]:
        """Everything charged so far, in order."""
        return () if self._ledger is None else self._ledger.events

    @property
    def rho_spent(self) -> float:
        """zCDP spent so far; all of the plan's after the last answer."""
        return 0.0 if self._ledger is None else float_above(self._ledger.spent.rho)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the batches; the metadata says whether the answers are private."""
        return COLUMNS.with_metadata({STAMP_KEY: self.stamp})

    def __len__(self) -> int:
        return self.plan.queries

    def __repr__(self) -> str:
        read = "reading them spends the budget, once" if self._counter is not None else "read"
        stamp = ", NOT PRIVATE" if self.insecure else ""
        return (
            f"<Answers to {self.plan.queries:,} queries by {self.plan.choice.name}, "
            f"epsilon {self.target.epsilon:g}, delta {self.target.delta:g}, expected RMSE "
            f"{self.plan.rmse:.4g} rows{stamp}: {read}>"
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def batches(self, confidence: float = 0.95, formulas: str = "keep") -> Iterator[pa.RecordBatch]:
        """Arrow record batches of a size that does not grow with the workload, each stamped.

        Args:
            confidence: probability with which each interval holds the true answer by itself.
            formulas: which values in the words of queries are escaped, for spreadsheet programs.

        Raises:
            InputError: a parameter is out of range, or the answers were read before.
        """
        interval_factor(confidence)
        kind = check_formulas(formulas)
        if self._counter is None:
            raise InputError(
                "the answers were read before and reading them spends the budget: keep the file "
                "or table that they went to"
            )
        counter, self._counter = self._counter, None
        return self._stream(counter, confidence, kind)

    def to_arrow(self, confidence: float = 0.95) -> pa.Table:
        """All answers as a pyarrow table.

        Raises:
            ResourceExceeded: they exceed the memory ceiling, with nothing spent.
        """
        needed = self.plan.queries * HELD_BYTES
        if needed > self._most_bytes:
            raise ResourceExceeded(
                f"{self.plan.queries:,} answers take about {needed / 2**20:,.0f} MB in memory, "
                f"above the {self._most_bytes / 2**20:,.0f} MB of --max-memory that are left: "
                "write them to a file or read them in batches"
            )
        with self._session.working(LOST):
            table = pa.Table.from_batches(list(self.batches(confidence)), self.arrow_schema)
            table = table.unify_dictionaries()
            self.close()
        return table

    def to_pandas(self, confidence: float = 0.95) -> Any:
        """All answers as a pandas data frame; ``attrs`` says where they are not private."""
        with self._session.working(LOST):
            frame = self.to_arrow(confidence).to_pandas()
            if self.stamp != PRIVATE:
                frame.attrs[STAMP_KEY.decode()] = self.stamp
            return frame

    def write(
        self,
        path: str | Path,
        confidence: float = 0.95,
        formulas: str = "escape-learnt",
        force: bool = False,
    ) -> int:
        """Write all answers as .parquet, .csv or .csv.gz, whatever their number.

        The file appears with the last answer, after its privacy statement (see ``manifest_path``).
        A file beside it says where it is not private.

        Args:
            path: of the file; its suffix tells the format.
            confidence: as for :meth:`batches`.
            formulas: which values that a spreadsheet program would run as formulas are escaped in
                CSV: "escape-learnt" those that were learnt, "escape" all and the names of columns,
                "keep" none.
            force: replace files that exist; a resumed run replaces what it had written itself.

        Returns:
            Number of answers.

        Raises:
            InputError: a file exists, cannot be written or has another suffix, with nothing spent;
                or as for :meth:`batches`.
            ResourceExceeded: the disk has no room for so many answers, with nothing spent.
        """
        check_table_path(path)
        kind = check_formulas(formulas)
        if not table_format(path).is_text:
            kind = "keep"
        mine = is_from_interrupted_run(path, self._resumed)
        replacing = force or mine
        for file in (path, stamp_path(path), manifest_path(path)):
            check_new(file, replacing)
        check_room(self.plan.queries, path)
        with self._session.working(LOST):
            with (
                with_manifest(path, replacing) as write_manifest,
                stamped(path, self.stamp) as put_stamp,
            ):
                batches = self.batches(confidence, kind)
                sealed = partial(self._state, write_manifest, confidence, put_stamp)
                schema = self.arrow_schema
                count = write_batches(batches, schema, path, REPEATING, sealed, replacing)
            self.close()
        return count

    def write_csv(
        self, file: BinaryIO, confidence: float = 0.95, formulas: str = "escape-learnt"
    ) -> int:
        """Write all answers as CSV to an open stream, without a statement beside it.

        Args:
            file: takes bytes.
            confidence: Probability that an interval covers the true answer.
            formulas: What to do with texts that a spreadsheet would compute, as for :meth:`write`.

        Returns:
            Number of answers.

        Raises:
            InputError: as for :meth:`batches`.
        """
        count = 0
        with self._session.working(LOST):
            batches = self.batches(confidence, formulas)
            with CSV.batch_writer(self.arrow_schema, REPEATING, file) as write:
                for batch in batches:
                    write(batch)
                    count += batch.num_rows
            self.close()
        return count

    def statement(self, confidence: float = 0.95) -> AnswersManifest:
        """The privacy statement of all answers, of which none may be left to read."""
        if self._ledger is None or not self.seconds:
            raise InputError("the answers were not read to their end: read them first")
        place = self._ledger.place
        return statement_of_answers(
            self.plan, self.target, self._schema, self.ledger, self.stamp, confidence, place
        )

    def _state(
        self,
        write_manifest: Callable[..., None],
        confidence: float,
        put_stamp: Callable[[], None],
        sha256: str,
    ) -> None:
        """Write what stands beside the answers, before their file, which is whole, has its name."""
        statement = self.statement(confidence)
        self._session.publish({MANIFEST: digest_of_statement(statement), ANSWERS_MEMBER: sha256})
        write_manifest(statement, sha256=sha256)
        put_stamp()

    def close(self) -> None:
        """Say that the answers are safe: a ledger no longer keeps them.

        ``write``, ``to_arrow`` and ``to_pandas`` do so themselves; whoever iterates does it here.
        """
        self._session.finish()

    def _stream(
        self, counter: MarginalCounter, confidence: float, formulas: Formulas
    ) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        total, done = plan.queries, 0
        with closing(counter), self._session.working(LOST):
            report = self._clock.steps("answer")
            report(0, total)
            mechanisms = self._begin()
            self._ledger = mechanisms.ledger
            sets = answer_sets(
                plan.mechanism, mechanisms.table(counter), mechanisms, plan.target.units
            )
            copies = self.target.unit.copies
            if copies > 1:
                sets = (answers.for_each(copies) for answers in sets)
            for batch in answer_batches(sets, self._schema, confidence, formulas):
                done += batch.num_rows
                report(done, total)
                yield batch.replace_schema_metadata({STAMP_KEY: self.stamp})
            reach(Fault.MEASURED)
            self.seconds = self._clock.stop()
