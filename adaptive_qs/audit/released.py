"""Verification of released files against the ledger.

What a file says about itself is no evidence. The ledger has every charge of the run, and digests of
what it released, recorded before the release left the program. The parts for people must follow
from the parts for programs. A person who can write the ledger can make all of this fit; copies of
the ledger and of the hashes of its entries in other hands reveal that.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import ne
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from adaptive_qs.answering.api import AnswersManifest, Charges, group_charges
from adaptive_qs.errors import InputError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Recovered
from adaptive_qs.privacy.budget import LedgerPosition
from adaptive_qs.privacy.events import Cost, Event, Transcript
from adaptive_qs.release import bundle as bundles
from adaptive_qs.release.facts import total_cost
from adaptive_qs.release.page import build_pages
from adaptive_qs.release.statement import MANIFEST, Manifest, Statement, versions
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.table.archive import ArchiveReader, Members, is_packed, open_archive
from adaptive_qs.table.files import compute_sha256
from adaptive_qs.table.schema import SET_MEMBER
from adaptive_qs.table.text import Formulas


@dataclass(frozen=True)
class Released:
    """The content of a released file.

    Attributes:
        digests: SHA-256 of its parts, by the names in the ledger.
        charges: the charges that it lists, one by one or counted by their parameters.
        faults: contradictions between its parts.
        unchecked: parts that could not be compared with anything.
        price: the cost of the whole run, if the statement is about a part of it.
    """

    path: Path
    statement: Statement
    digests: Mapping[str, str]
    charges: tuple[Event, ...] | tuple[Charges, ...]
    faults: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    price: Cost | None = None

    def recovered(self, identity: str) -> Recovered:
        """Return what a ledger that lacks the release has to record.

        InputError is raised if it was made without a ledger or with another one, contradicts
        itself, or is one table of a set, whose statement does not contain the cost of the others.
        """
        place = self._place("count what it cost with --rho")
        if place.ledger != identity:
            raise InputError(
                f"{self.path}: belongs to another ledger: remove it, or restore that one"
            )
        if self.faults:
            raise InputError(f"{self.path}: {'; '.join(self.faults)}: do not rely on it")
        if self.statement.protects.related is not None and self.price is None:
            raise InputError(
                f"{self.path} is one table of a set. Use the release bundle of all tables, or "
                "count what they cost with --rho."
            )
        return Recovered(
            run=place.run, releases=place.releases, hash=place.hash, price=self._spent,
            digests=dict(self.digests),
        )  # fmt: skip

    def check(self, book: LedgerBook) -> None:
        """Compare the file with the run of a ledger that its statement names.

        InputError names the part that differs, or is raised if the file was made without a ledger.
        """
        place = self._place("nothing to compare")
        lost = book.recovered(place)
        if place.ledger != book.identity or (lost is None and not book.published(place.run)):
            raise InputError(
                f"{self.path}: is not in this ledger as it says: it belongs to another ledger, or "
                "to a run that handed nothing over"
            )
        if lost is None:
            faults = [self._unlike_charges(book.events(place.run))]
            faults += [] if book.has(place) else ["its place in the ledger is another"]
            recorded = book.published(place.run)
        else:
            faults = [] if lost.price == self._spent else ["its charges are others"]
            recorded = [lost.digests]
        faults += [*_unlike(self.digests, recorded), *self.faults]
        if any(faults):
            raise InputError(
                f"{self.path}: is not what run {place.run} of this ledger released: "
                f"{'; '.join(filter(None, faults))}: do not rely on it"
            )

    @property
    def _spent(self) -> Cost:
        return total_cost(self.statement.facts) if self.price is None else self.price

    def _unlike_charges(self, true: Sequence[Event]) -> str:
        """Describe the charges of a run that the file does not list; "" if it lists all."""
        counted = isinstance(self.statement, AnswersManifest)
        expected = group_charges(true) if counted else tuple(self._own(true))
        if self.charges == expected:
            return ""
        if counted:
            return f"its charges are not those of the ledger's {len(true):,}"
        differ = sum(map(ne, true, self.charges)) + abs(len(true) - len(self.charges))
        return f"{differ:,} of its charges are not those of the ledger's {len(true):,}"

    def _own(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events of a run that a table should list: of one of a set, a part of them."""
        number, related = len(self.charges), self.statement.protects.related
        if related is None or self.price is not None:
            return events
        starts = range(max(len(events) - number, 0) + 1)
        parts = (events[start : start + number] for start in starts)
        return next((part for part in parts if tuple(part) == self.charges), events[:number])

    def _place(self, otherwise: str) -> LedgerPosition:
        place = self.statement.ledger
        if place is None:
            raise InputError(f"{self.path}: was made without a ledger: {otherwise}")
        return place


def read_released(path: Path, max_memory: int | str | None = None) -> Released:
    """Read a release bundle, a table or file of answers with its sidecar, or that sidecar.

    Raises:
        InputError: the file is none of these, damaged, or made by a newer version.
        ResourceExceeded: reading it would take more than the ceiling of memory.
    """
    if is_zipfile(path):
        return _bundle(path, max_memory)
    if exists(path) and exists(bundles.manifest_path(path)):
        return _sidecar(path, bundles.manifest_path(path), path, max_memory)
    return _sidecar(path, path, bundles.table_path(path), max_memory)


def _bundle(path: Path, max_memory: int | str | None) -> Released:
    with open_archive(path, "release bundle", max_memory) as archive:
        if SET_MEMBER in archive.names:
            return _set(archive, path)
        bundle = bundles.Bundle.read(archive, path)
        digests, faults, members = _members(archive, bundle)
        faults = faults or _repacked(path, members.items())
    return Released(path, bundle.manifest, digests, bundle.events, tuple(faults))


def _set(archive: ArchiveReader, path: Path) -> Released:
    release = ReleaseSet.read(archive, path)
    digests, faults = {SET_MEMBER: archive.sha256(SET_MEMBER)}, []
    for table, bundle in release.tables.items():
        found, wrong, _ = _members(archive.within(table), bundle)
        digests |= {f"{table}/{name}": digest for name, digest in found.items()}
        faults += [f"{table}: {fault}" for fault in wrong]
    known = (SET_MEMBER, *(f"{table}/" for table in release.tables))
    more = sorted(name for name in archive.names if not name.startswith(known))
    faults += [f"{more[0]!a} is no part of a release"] if more else []
    faults = faults or _repacked(path, release.members())
    price = Cost.of(release.events)
    return Released(path, release.manifest, digests, release.events, tuple(faults), price=price)


def _repacked(path: Path, members: Members) -> list[str]:
    if is_packed(path, members):
        return []
    return [
        "it has bytes that are no part of a release, or another version packed it (save it anew "
        "with Synthesizer.load(FILE).save(NEW), and verify that)"
    ]


def _members(
    archive: ArchiveReader, bundle: bundles.Bundle
) -> tuple[dict[str, str], list[str], dict[str, Any]]:
    """Compare the members of a bundle with what they follow from.

    Return the SHA-256 of the members that a program reads, contradictions, and the members as
    written.
    """
    digests = {name: archive.sha256(name) for name in bundles.MEMBERS}
    faults = []
    pages = build_pages(bundle)
    for name, fresh in pages.items():
        if name not in archive.names:
            faults.append(f"{name} is missing")
        elif archive.sha256(name) != compute_sha256([fresh.encode()]):
            faults.append(f"{name} does not follow from the rest{_versions(bundle.manifest)}")
    more = sorted(set(archive.names) - {*bundles.MEMBERS, *pages})
    faults += [f"{more[0]!a} is no part of a release"] if more else []
    return digests, faults, {**pages, **bundle.texts(), **bundle.arrays()}


def _sidecar(
    named: Path, manifest: Path, table: Path | None, max_memory: int | str | None
) -> Released:
    content = bundles.read_sidecar(manifest, max_memory)
    sha256 = content.pop("sha256", None)
    more: dict[str, Any] = {}
    found = None if table is None or not exists(table) else _sha256(table)
    differs = found not in (None, sha256)
    try:
        if content.get("kind") == "answers":
            answers = AnswersManifest.model_validate(content)
            digest, member = bundles.digest_of_statement(answers), bundles.ANSWERS_MEMBER
            digests = {MANIFEST: digest, member: str(sha256)}
            released = Released(named, answers, digests, answers.charges)
            what, fault = "answers", "the answers next to it are others"
        else:
            released, more = _table(named, content)
            what, fault = "table", "its table differs"
    except (ValidationError, InputError, ArithmeticError):
        raise InputError(
            f"{manifest}: is no statement of a release: it is damaged or was edited"
        ) from None
    faults = (fault, *released.faults) if differs else released.faults
    text = bundles.sidecar_text(released.statement, **more, sha256=sha256)
    if _sha256(manifest) != compute_sha256([text.encode()]):
        faults += ("its statement is not as it was written, byte for byte",)
    unchecked = () if found else (f"the {what} next to it: no such file",)
    return replace(released, faults=faults, unchecked=unchecked + released.unchecked)


class _Sampling(BaseModel, extra="forbid", strict=True):
    """The part of a table's sidecar that says how the table was drawn."""

    seed: NonNegativeInt
    rows: NonNegativeInt
    formulas: Formulas = "keep"
    where: str | None = None
    root_rows: NonNegativeInt | None = None
    """Rows of the root of a set of tables in the same sample."""
    contradictions: list[dict[str, Any]] = Field(default_factory=list)
    """Cells in which the table differs from the release by more than chance allows."""


def _table(named: Path, content: dict[str, Any]) -> tuple[Released, dict[str, Any]]:
    """Check the sidecar of a table; return also what it adds to the statement."""
    events = Transcript.model_validate({"events": content.pop("charges", ())}).events
    sampling = content.pop("sampling", None)
    statement = Manifest.model_validate(content)
    faults = []
    if Cost.of(events) != total_cost(statement.facts):
        faults.append("its charges do not add up to its facts")
    if statement.spent_share(events) > 1:
        faults.append("its mu is not that of its charges")
    try:
        _Sampling.model_validate(sampling)
    except ValidationError:
        faults.append("its seed and number of rows are no such")
    related = statement.protects.related
    folder = "" if related is None else f"{related.table}/"
    digests = {
        folder + MANIFEST: bundles.digest_of_statement(statement),
        folder + bundles.CHARGES: compute_sha256([bundles.charges_text(events).encode()]),
    }
    redrawn = "that the table was drawn from the release: draw it again with its seed"
    released = Released(named, statement, digests, events, tuple(faults), (redrawn,))
    charges = Transcript(events=events).model_dump(mode="json")["events"]
    return released, {"sampling": sampling, "charges": charges}


def _unlike(digests: Mapping[str, str], recorded: Sequence[Mapping[str, str]]) -> list[str]:
    """Name the parts that differ from the most similar of the recorded releases."""
    unlike = [
        [name for name, digest in digests.items() if one.get(name) != digest] for one in recorded
    ]
    names = min(unlike, key=len)
    return [f"{', '.join(names)} {'differs' if len(names) == 1 else 'differ'}"] if names else []


def _versions(statement: Statement) -> str:
    """Return a hint if other versions of packages made the page."""
    here = versions()
    other = [name for name, found in statement.versions.items() if here.get(name) != found]
    return f" (made with another {', '.join(other)}: check it there)" if other else ""


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise InputError(f"{path}: {reason}: make it readable") from None
