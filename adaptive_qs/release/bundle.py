"""The contents of a release and its files: the bundle, and the sidecar of a table or answers."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import Annotated, Any, Self
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, FailFast, Field, TypeAdapter, ValidationError

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.jsonfile import read_json
from adaptive_qs.levels import Grouping
from adaptive_qs.machine import memory_claims
from adaptive_qs.privacy.budget import LedgerPosition
from adaptive_qs.privacy.events import Event, Purpose, Transcript
from adaptive_qs.release import statement as statements
from adaptive_qs.release.facts import Fact, list_paid_facts
from adaptive_qs.release.statement import MANIFEST, Manifest, Resolution, RoundRecord, Statement
from adaptive_qs.residual import ReferenceModel, ResidualEstimate
from adaptive_qs.strategy.integer import LARGEST, ColumnStrategy, noise_by_attribute
from adaptive_qs.table.archive import ArchiveReader, npy_bytes, open_archive
from adaptive_qs.table.coded import MAX_ROWS
from adaptive_qs.table.files import NameTaken, atomic_writer, compute_sha256
from adaptive_qs.table.schema import SET_MEMBER, Schema
from adaptive_qs.workload.file import WorkloadFile
from adaptive_qs.workload.workload import Workload, check_subsets

CHARGES = "ledger.json"
MEMBERS = (
    MANIFEST, "schema.json", "workload.json", CHARGES, "record.json", "reference.npy",
    "residuals.npy",
)  # fmt: skip
"""What a program reads; everything else follows from it."""


_Coefficient = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]


class _Measured(BaseModel, frozen=True):
    """What the record says about one stretch of `residuals.npy`."""

    attributes: statements.Names
    groups: statements.Sizes
    """Codes of each, or groups of them."""
    precision: Annotated[float, Field(ge=2.0**-100, le=2.0**100)]


class _Level(BaseModel, frozen=True):
    """Groups of the codes of a column."""

    column: str
    groups: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**16)], ...], FailFast()]
    """The group of each code."""


class _Strategy(BaseModel, frozen=True):
    """Integer queries by which a single column was measured."""

    column: str
    queries: Annotated[tuple[Annotated[tuple[_Coefficient, ...], FailFast()], ...], FailFast()]
    """The coefficient of each code in each of them; with the noise variances of the charges they
    tell what was added to the counts."""


_Sum = Annotated[float, Field(ge=-(2.0**62), le=2.0**62)]


class _Record(BaseModel, frozen=True):
    """How the numbers came about: `record.json`."""

    levels: Annotated[tuple[_Level, ...], FailFast()] = ()
    """Groups of codes that marginals were offered at, from fine to coarse."""
    strategies: Annotated[tuple[_Strategy, ...], FailFast()] = ()
    """Columns that were measured by more than their cells, since the workload requested more."""
    rounds: Annotated[tuple[RoundRecord, ...], FailFast()]
    halves: Annotated[tuple[_Sum, ...], FailFast()] = ()
    """Sums of the products of signs of halves, by pair of the rounds without a marginal."""
    residuals: Annotated[tuple[_Measured, ...], Field(min_length=1), FailFast()]


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """Noisy residuals, how they came about and what was paid; no private data.

    ValueError is raised if parts do not fit each other.

    Attributes:
        manifest: the privacy statement and the public parameters.
        estimates: residual estimates z_τ with their precision 1/variance (1/rows²).
        reference: q_i, one strictly positive distribution per attribute.
        rounds: what each round of the loop did.
        events: every charge, in order.
        groupings: the levels of attributes above their codes.
        strategies: how single columns were measured, where not by their cells.
        halves: what rounds without a marginal measured of halves, if a copula fills pairs.
    """

    manifest: Manifest
    schema: Schema
    workload: Workload
    estimates: Mapping[Clique, ResidualEstimate]
    reference: tuple[NDArray[np.float64], ...]
    rounds: tuple[RoundRecord, ...]
    events: tuple[Event, ...]
    groupings: tuple[Grouping, ...] = ()
    strategies: Mapping[int, ColumnStrategy] = field(default_factory=dict)
    halves: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.schema.fingerprint != self.manifest.schema_fingerprint:
            raise ValueError("the schema is not the one of the manifest")
        stated = [fact for fact in self.manifest.facts if fact.basis == "paid for"]
        if [*map(_paid, stated)] != [*map(_paid, list_paid_facts(self.events, self.schema))]:
            raise ValueError("the charges are not what the manifest says that was paid for")
        if self.manifest.spent_share(self.events) > 1:
            raise ValueError("mu is not that of the charges")
        if () not in self.estimates:
            raise ValueError("the number of rows is not among the estimates")
        filled = looked_at(self.domain, self.rounds)[0] if self.halves else []
        measured = [*map(self.domain.columns, self.estimates), *filled]
        if len(filled) != len(self.halves):
            raise ValueError("halves are not those that rounds measured")
        if self.manifest.unconnected != unconnected_columns(self.workload, measured):
            raise ValueError("the unconnected columns are not the manifest's")
        if self.manifest.resolutions != list_resolutions(self.rounds, self.domain):
            raise ValueError("what rounds measured is not what the manifest says")
        ordered = sorted(self.estimates.items(), key=lambda item: (len(item[0]), item[0]))
        object.__setattr__(self, "estimates", dict(ordered))

    @cached_property
    def domain(self) -> Domain:
        """The columns, with the levels at which they were measured."""
        return replace(self.workload.domain, groupings=self.groupings)

    def model(self) -> ReferenceModel:
        """Estimates of every marginal, the same to the last bit for the same bundle."""
        noise = noise_by_attribute(self.strategies)
        model = ReferenceModel(self.domain, self.reference, self.estimates, noise)
        if self.halves:
            from adaptive_qs.generate.shape import Halves  # few releases need it

            pairs, precision = looked_at(self.domain, self.rounds)
            held = ResidualEstimate(np.array(self.halves), precision)
            model.copula = Halves(model, pairs).ratios(held)
        return model

    def __repr__(self) -> str:
        manifest = self.manifest
        stamp = ", NOT PRIVATE" if manifest.insecure else ""
        return (
            f"<{type(self).__name__}: {len(self.workload.domain)} columns, {len(self.estimates):,} "
            f"residuals measured, epsilon {manifest.epsilon:g}, delta {manifest.delta:g}, "
            f"rho {manifest.rho_spent:g} spent{stamp}>"
        )

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every member that a program reads, by name, as it is saved."""
        texts = {name: compute_sha256([text.encode()]) for name, text in self.texts().items()}
        arrays = {name: compute_sha256(npy_bytes(parts)) for name, parts in self.arrays().items()}
        return texts | arrays

    def texts(self) -> dict[str, str]:
        """Return the members of JSON, by name."""
        domain = self.domain
        names, estimates = domain.names, self.estimates.items()
        record = _Record(
            levels=tuple(
                _Level(column=names[each.attribute], groups=each.groups) for each in self.groupings
            ),
            strategies=tuple(
                _Strategy(column=names[i], queries=strategy.integers.tolist())
                for i, strategy in self.strategies.items()
            ),
            rounds=self.rounds,
            halves=self.halves,
            residuals=tuple(
                _Measured(attributes=domain.clique_names(clique), groups=domain.shape(clique),
                          precision=estimate.precision)
                for clique, estimate in estimates
            ),
        )  # fmt: skip
        return {
            MANIFEST: self.manifest.to_json(),
            "schema.json": self.schema.to_json(),
            "workload.json": _json(WorkloadFile.of(self.workload)),
            CHARGES: charges_text(self.events),
            "record.json": _json(record),
        }

    def arrays(self) -> dict[str, Sequence[NDArray[np.float64]]]:
        """Return the members of numbers, by name: vectors and arrays one after the other."""
        return {
            "reference.npy": self.reference,
            "residuals.npy": [estimate.values for estimate in self.estimates.values()],
        }

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a bundle and check that its parts fit each other and the budget.

        Raises:
            InputError: it is missing, damaged, or made by a newer version.
            ResourceExceeded: reading it would take more than ``max_memory`` of the process.
        """
        with open_archive(path, "release bundle", max_memory) as archive:
            if SET_MEMBER in archive.names:
                raise InputError(
                    f"{path}: is the release of a set of tables, and this takes one of one table: "
                    "sample the tables from it with adaptive-qs sample (in Python Synthesizer.load)"
                )
            return cls.read(archive, path)

    @classmethod
    def read(cls, archive: ArchiveReader, path: str | Path) -> Self:
        """Return the bundle in an open archive, with its path for messages; see :meth:`load`."""
        content = archive.json(MANIFEST)
        statements.check_version(content, path)
        try:
            return cls._read(archive, content)
        except InputError as error:
            raise InputError(f"{path}: the release is damaged: {error}") from None

    @classmethod
    def _read(cls, archive: ArchiveReader, content: Any) -> Self:
        schema = Schema.parse(archive.json("schema.json"), claim=archive.claim)
        domain = schema.domain()
        requested = WorkloadFile.parse(archive.json("workload.json"))
        if any(part.attributes is None for part in requested.parts):
            raise ValueError("the marginals are not listed")  # a few words may stand for millions
        workload = requested.workload(domain)
        events = Transcript.model_validate(archive.json(CHARGES)).events
        manifest = Manifest.model_validate(content)
        record = _Record.model_validate(archive.json("record.json"))
        groupings = tuple(
            Grouping(domain.clique([level.column])[0], level.groups) for level in record.levels
        )
        domain = replace(domain, groupings=groupings)
        for past in record.rounds:
            domain.clique_at(past.clique, past.groups)
        check_subsets(Counter(len(one.attributes) for one in record.residuals))
        cliques = [domain.clique_at(one.attributes, one.groups) for one in record.residuals]
        if len(set(cliques)) < len(cliques):
            raise ValueError("a residual occurs twice")
        charged = {e.columns for e in events if e.purpose in (Purpose.ROWS, Purpose.RESIDUAL)}
        if not charged >= set(map(domain.clique_names, cliques)):
            raise ValueError("a residual is not among the charges")
        values = archive.arrays("residuals.npy", [domain.shape(clique) for clique in cliques])
        reference = archive.arrays("reference.npy", [(size,) for size in domain.sizes])
        if any(q.min() <= 0 or abs(math.fsum(q) - 1) > 1e-9 for q in reference):
            raise ValueError("a reference is no strictly positive distribution")
        for array, measured in zip(values, record.residuals):
            deviation = math.sqrt(array.size / measured.precision)
            most = MAX_ROWS + 64 * deviation  # noise exceeds it with probability exp(-2048)
            if not -most <= array.min() <= array.max() <= most:
                raise ValueError("a residual is larger than any that is measured")
        estimates = {
            clique: ResidualEstimate(array, measured.precision)
            for clique, array, measured in zip(cliques, values, record.residuals)
        }
        strategies = {
            domain.clique([one.column])[0]: _read_strategy(one, domain) for one in record.strategies
        }
        filled = looked_at(domain, record.rounds)[0] if record.halves else []
        archive.claim(64 * sum(map(domain.size, filled)))  # ratios, targets and differences
        return cls(
            manifest, schema, workload, estimates, tuple(reference), record.rounds, events,
            groupings, strategies, record.halves,
        )  # fmt: skip


def _read_strategy(written: _Strategy, domain: Domain) -> ColumnStrategy:
    (attribute,) = domain.clique([written.column])
    if {*map(len, written.queries)} != {domain.sizes[attribute]}:
        raise ValueError("a strategy is not over the codes of its column")
    return ColumnStrategy.of_integers(np.array(written.queries, dtype=np.int64))


def charges_text(events: Iterable[Event]) -> str:
    """Return the member of a bundle that holds every charge."""
    return _json(Transcript(events=tuple(events)))


def list_resolutions(rounds: Iterable[RoundRecord], domain: Domain) -> tuple[Resolution, ...]:
    """Return the combinations of columns that rounds measured, each at every level, in order."""
    chosen = dict.fromkeys((past.clique, past.groups) for past in rounds if len(past.clique) > 1)
    return tuple(
        Resolution(columns=columns, groups=groups, codes=domain.shape(domain.clique(columns)))
        for columns, groups in chosen
    )


def looked_at(domain: Domain, rounds: Iterable[RoundRecord]) -> tuple[list[Clique], float]:
    """Return pairs of columns of which rounds measured the halves, and how precisely (1/rows²)."""
    looks = [past.noise_variances for past in rounds if not past.clique]
    pairs = [domain.clique(names) for names, _, _ in (looks or [()])[0]]
    if not all(looks) or any(len(c) != 2 or min(domain.shape(c)) < 3 for c in pairs):
        raise ValueError("a look at the halves of no pairs")
    return pairs, math.fsum(1 / one[0][2] for one in looks)


def unconnected_columns(workload: Workload, measured: Iterable[Clique]) -> tuple[str, ...]:
    """Return columns whose combinations were requested and none was measured, in schema order.

    In tables they are independent of all others. Columns of one code, or of which the workload
    has no combination, are not among them.
    """
    domain = workload.domain
    several = {i for i, size in enumerate(domain.sizes) if size > 1}

    def joined(cliques: Iterable[Clique]) -> set[int]:
        parts = (several.intersection(clique) for clique in cliques)
        return {i for part in parts if len(part) > 1 for i in part}

    return tuple(domain.names[i] for i in sorted(joined(workload.cliques) - joined(measured)))


def _paid(fact: Fact) -> tuple[Any, ...]:
    """Return what a charge must agree with; its words may come from another version."""
    return fact.kind, fact.columns, fact.cost


def _json(model: BaseModel) -> str:
    return model.model_dump_json() + "\n"


# The sidecar: the statement in a file next to a table or answers, which have no place for it.

ANSWERS_MEMBER = "answers"
"""Names the file of answers among what a ledger records as handed over."""
_ENDING = ".manifest.json"


def manifest_path(table: str | Path) -> Path:
    """Return the sidecar of a table: the file next to it with its privacy statement."""
    path = Path(table)
    return path.parent / f"{path.name}{_ENDING}"


def table_path(manifest: str | Path) -> Path | None:
    """Return the table or answers of a sidecar; None if its name belongs to none.

    Of a database with several tables, NAME.db, each has a sidecar NAME.db.TABLE.manifest.json.
    """
    path = Path(manifest)
    name = path.name.removesuffix(_ENDING)
    if name in ("", path.name):
        return None
    table = path.parent / name
    return table.with_suffix("") if not exists(table) and exists(table.with_suffix("")) else table


def sidecar_text(statement: Statement, **more: Any) -> str:
    """Return the text of a sidecar; the same statement and fields give the same text."""
    content = {**json.loads(statement.to_json()), **more}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def with_manifest(table: str | Path, replace: bool = True) -> Iterator[Callable[..., None]]:
    """Yield what writes a statement next to a table, before the table itself appears.

    It takes the statement, and fields of this table only, such as the seed that it was sampled
    with. If the table does not appear, the statement is removed.
    """
    written = False

    def write(statement: Statement, **more: Any) -> None:
        nonlocal written
        with atomic_writer(manifest_path(table), replace) as file:
            file.write(sidecar_text(statement, **more).encode())
        written = True

    try:
        yield write
    except BaseException as error:
        if written and (isinstance(error, NameTaken) or not Path(table).exists()):
            with suppress(OSError):
                manifest_path(table).unlink(missing_ok=True)
        raise


def digest_of_statement(statement: Statement) -> str:
    """Return the SHA-256 of a statement alone, without the fields that a sidecar adds to it."""
    return compute_sha256([statement.to_json().encode()])


def read_sidecar(path: str | Path, max_memory: int | str | None = None) -> dict[str, Any]:
    """Return the content of a sidecar; InputError if it is none, or was made by a newer version.

    Raise ResourceExceeded if reading it would take more than ``max_memory`` of the process.
    """
    try:
        content = read_json(path, InputError, memory_claims(max_memory))
    except ResourceExceeded as error:
        raise ResourceExceeded(f"{path}: {error}") from None
    if not isinstance(content, dict) or "format_version" not in content:
        raise InputError(f"{path}: is neither a release bundle nor the manifest of a table")
    statements.check_version(content, path)
    return content


def is_from_interrupted_run(
    output: str | Path, ledger: str | Path | None, max_memory: int | str | None = None
) -> bool:
    """Return whether a bundle or a sidecar says that its run is still open in the ledger."""
    sidecar = manifest_path(output)
    release = sidecar if exists(sidecar) else output
    if ledger is None or not exists(release):
        return False
    try:
        if is_zipfile(release):
            with open_archive(release, "release bundle", max_memory) as archive:
                one = archive
                if SET_MEMBER in archive.names:  # all tables stand at the same place
                    one = archive.within(next(n for n in archive.names if "/" in n).split("/")[0])
                place = Bundle.read(one, release).manifest.ledger
        else:
            stated = read_sidecar(release, max_memory).get("ledger")
            place = None if stated is None else TypeAdapter(LedgerPosition).validate_python(stated)
    except (InputError, ValidationError, ResourceExceeded):  # it is no output of a run
        return False
    from adaptive_qs.ledger.book import LedgerBook

    return place is not None and LedgerBook(ledger).is_open(place.ledger, place.run)
