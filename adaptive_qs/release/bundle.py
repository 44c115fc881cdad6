"""The contents of a release, and the file that keeps them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field

from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.events import Cost, Event, Transcript
from adaptive_qs.release.facts import total_cost
from adaptive_qs.release.statement import (
    Manifest,
    Positive,
    RoundRecord,
    alone_among,
    check_version,
    read_manifest,
    statement_page,
)
from adaptive_qs.residual.model import ReferenceModel, ResidualEstimate
from adaptive_qs.table.archive import (
    ArchiveReader,
    create_archive,
    npy_bytes,
    open_archive,
    sha256_of,
)
from adaptive_qs.table.files import check_new
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import WorkloadFile
from adaptive_qs.workload.workload import Workload

MANIFEST, CHARGES = "manifest.json", "ledger.json"
MEMBERS = (
    MANIFEST, "schema.json", "workload.json", CHARGES, "record.json", "reference.npy",
    "residuals.npy",
)  # fmt: skip
"""What a program reads; everything else follows from it."""
STATEMENT = "statement.md"
"""The member for people, rendered from the manifest; loading does not need it."""
PAGE = "page.html"
"""The same with charts, rendered from all members; loading does not need it."""
_NO_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>No page</title>
<p>The page with charts could not be made: a fault of the program. The release is whole without it:
statement.md tells what is promised, and tables can be sampled as ever.
"""


class _Measured(BaseModel):
    """What `residuals.json` says about one stretch of `residuals.npy`."""

    model_config = ConfigDict(frozen=True)

    attributes: Annotated[tuple[str, ...], FailFast()]
    precision: Positive


class _Record(BaseModel):
    """How the numbers came about: `record.json`."""

    model_config = ConfigDict(frozen=True)

    rounds: Annotated[tuple[RoundRecord, ...], FailFast()]
    residuals: Annotated[tuple[_Measured, ...], Field(min_length=1), FailFast()]


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """Noisy residuals, how they came about and what was paid; no private data.

    Attributes:
        manifest: the privacy statement and the public parameters.
        schema: the public description of the columns.
        workload: the marginals that matter.
        estimates: residual estimates z_τ with their precision 1/variance (1/rows²).
        reference: q_i, one strictly positive distribution per attribute.
        rounds: what each round of the loop did.
        events: every charge, in order.

    Raises:
        ValueError: parts that do not fit each other.
    """

    manifest: Manifest
    schema: Schema
    workload: Workload
    estimates: Mapping[Clique, ResidualEstimate]
    reference: tuple[NDArray[np.float64], ...]
    rounds: tuple[RoundRecord, ...]
    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        if self.schema.fingerprint != self.manifest.schema_fingerprint:
            raise ValueError("the schema is not the one of the manifest")
        if Cost.of(self.events) != total_cost(self.manifest.facts):
            raise ValueError("the charges do not add up to what the manifest says")
        if () not in self.estimates:
            raise ValueError("the number of rows is not among the estimates")
        alone = alone_among(self.workload, self.estimates)
        if self.manifest.alone is None:  # made before manifests told them
            manifest = self.manifest.model_copy(update={"alone": alone})
            object.__setattr__(self, "manifest", manifest)
        elif self.manifest.alone != alone:
            raise ValueError("the columns of no measured combination are not those of the manifest")
        ordered = sorted(self.estimates.items(), key=lambda item: (len(item[0]), item[0]))
        object.__setattr__(self, "estimates", dict(ordered))

    def model(self) -> ReferenceModel:
        """Estimates of every marginal, the same to the last bit for the same bundle."""
        return ReferenceModel(self.workload.domain, self.reference, self.estimates)

    def __repr__(self) -> str:
        manifest = self.manifest
        stamp = ", NOT PRIVATE" if manifest.insecure else ""
        return (
            f"<{type(self).__name__}: {len(self.workload.domain)} columns, {len(self.estimates):,} "
            f"residuals measured, epsilon {manifest.epsilon:g}, delta {manifest.delta:g}, "
            f"rho {manifest.rho_spent:g} spent{stamp}>"
        )

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one zip of JSON and npy; the same release gives the same bytes.

        Args:
            path: of the bundle.
            force: replace a file that exists.

        Raises:
            InputError: the file exists, or cannot be written.
        """
        check_new(path, force)
        with create_archive(path) as archive:
            archive.add_text(STATEMENT, statement_page(self.manifest))
            archive.add_text(PAGE, page_of(self))
            for name, text in self._texts().items():
                archive.add_text(name, text)
            for name, parts in self._arrays().items():
                archive.add_array(name, parts)

    def digests(self) -> dict[str, str]:
        """SHA-256 of every member that a program reads, by name, as :meth:`save` writes it.

        The same release gives the same digests. The pages for people follow from these members.
        """
        texts = {name: sha256_of([text.encode()]) for name, text in self._texts().items()}
        arrays = {name: sha256_of(npy_bytes(parts)) for name, parts in self._arrays().items()}
        return texts | arrays

    def _texts(self) -> dict[str, str]:
        domain = self.workload.domain
        measured = tuple(
            _Measured(attributes=domain.clique_names(clique), precision=estimate.precision)
            for clique, estimate in self.estimates.items()
        )
        return {
            MANIFEST: self.manifest.to_json(),
            "schema.json": self.schema.to_json(),
            "workload.json": _json(WorkloadFile.of(self.workload)),
            CHARGES: charges_text(self.events),
            "record.json": _json(_Record(rounds=self.rounds, residuals=measured)),
        }

    def _arrays(self) -> dict[str, Sequence[NDArray[np.float64]]]:
        return {
            "reference.npy": self.reference,
            "residuals.npy": [estimate.values for estimate in self.estimates.values()],
        }

    @classmethod
    def load(cls, path: str | Path, max_memory: int | str | None = None) -> Self:
        """Read a bundle and check that its parts fit each other and the budget.

        Args:
            path: the file.
            max_memory: ceiling of the process's memory in bytes or as "3GB"; by default three
                quarters of the machine's.

        Raises:
            InputError: it is missing, damaged, or made by a newer version.
            ResourceExceeded: reading it would take more memory.
        """
        with open_archive(path, "release bundle", max_memory) as archive:
            return cls.read(archive, path)

    @classmethod
    def read(cls, archive: ArchiveReader, path: str | Path) -> Self:
        """The bundle in an open archive; see :meth:`load`.

        Args:
            archive: that was opened.
            path: of it, for messages.
        """
        content = archive.json(MANIFEST)
        try:
            check_version(content)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        try:
            return cls._read(archive, content)
        except InputError as error:
            raise InputError(f"{path}: the release is damaged: {error}") from None

    @classmethod
    def _read(cls, archive: ArchiveReader, content: Any) -> Self:
        schema = Schema.parse(archive.json("schema.json"))
        domain = schema.domain()
        asked = WorkloadFile.parse(archive.json("workload.json"))
        if any(part.attributes is None for part in asked.parts):
            raise ValueError("the marginals are not listed")  # a few words may stand for millions
        workload = asked.workload(domain)
        events = Transcript.model_validate(archive.json(CHARGES)).restored()
        manifest = read_manifest(content, schema, events)
        record = _Record.model_validate(archive.json("record.json"))
        for past in record.rounds:
            domain.clique(past.clique)
        cliques = [domain.clique(measured.attributes) for measured in record.residuals]
        if len(set(cliques)) < len(cliques):
            raise ValueError("a residual occurs twice")
        values = archive.arrays("residuals.npy", [domain.shape(clique) for clique in cliques])
        reference = archive.arrays("reference.npy", [(size,) for size in domain.sizes])
        if any(q.min() <= 0 or abs(math.fsum(q) - 1) > 1e-9 for q in reference):
            raise ValueError("a reference is no strictly positive distribution")
        estimates = {
            clique: ResidualEstimate(array, measured.precision)
            for clique, array, measured in zip(cliques, values, record.residuals)
        }
        return cls(manifest, schema, workload, estimates, tuple(reference), record.rounds, events)


def charges_text(events: Iterable[Event]) -> str:
    """Every charge, as the member of a bundle that holds them."""
    return _json(Transcript.of(events))


def page_of(bundle: Bundle) -> str:
    """The page, or one that says why there is none: a fault in it must not cost what was paid."""
    try:
        from adaptive_qs.release.page import release_page

        return release_page(bundle)
    except Exception:  # noqa: BLE001  (the budget is spent, and everything else is whole)
        return _NO_PAGE


def _json(model: BaseModel) -> str:
    return model.model_dump_json(exclude_defaults=False) + "\n"
