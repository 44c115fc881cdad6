"""What the release of a synthetic table promised, where that can be found."""

from __future__ import annotations

from dataclasses import dataclass
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path

from pydantic import ValidationError

from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.attack.game import Promise
from adaptive_qs.release.beside import manifest_path, read_beside
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.release.manifest import Manifest
from adaptive_qs.release.statement import Statement


@dataclass(frozen=True, eq=False)
class Promised:
    """What was found.

    Attributes:
        release: the bundle, or the statement that lay beside the table; None where there is none.
        promise: that it makes; None where it is not known, or nothing is promised.
        limitation: why there is no promise, for the reader.
    """

    release: Bundle | Statement | None
    promise: Promise | None
    limitation: str | None

    @property
    def statement(self) -> Statement | None:
        """The statement of the release, where it is known."""
        return self.release.manifest if isinstance(self.release, Bundle) else self.release


def find_promise(
    release: str | Path | Bundle | None,
    synthetic: str | Path | None,
    schema: Schema,
    max_memory: int | str | None = None,
) -> Promised:
    """The promise of a release bundle, or else of the statement beside the synthetic table.

    The promise is that of what was spent, which may be less than the budget. Where part of δ was
    spent on discovering values, zCDP is not all of it, and only (ε, δ) is given. A release that
    was made with another schema is not taken for that of the table, and nothing is said of one
    whose schema was taken from the data: its promise does not cover what that tells.

    Args:
        release: the bundle or its path, if one was named.
        synthetic: path of the table; None where it is no file.
        schema: of it, as it is compared.
        max_memory: ceiling of the process's memory while it is read.

    Raises:
        InputError: the bundle cannot be read, or was made with another schema.
        ResourceExceeded: reading it would take more memory.
    """
    if release is not None:
        bundle = release if isinstance(release, Bundle) else Bundle.load(release, max_memory)
        label = "the release" if isinstance(release, Bundle) else str(release)
        if bundle.manifest.schema_fingerprint != schema.fingerprint:
            raise InputError(
                f"{label}: was made with another schema: name the release that the synthetic "
                "table comes from, and give it as --schema, too"
            )
        name = label if isinstance(release, Bundle) else Path(release).name
        return _promised(bundle, bundle.manifest, name)
    beside = None if synthetic is None else manifest_path(synthetic)
    if beside is None or not exists(beside):
        return Promised(
            None,
            None,
            "the privacy promise is not known: no --release was given, and no statement lies "
            "beside the synthetic table",
        )
    try:
        content = read_beside(beside, max_memory)
        known = {key: value for key, value in content.items() if key in Manifest.model_fields}
        statement = Manifest.model_validate(known)
    except (InputError, AttributeError, ValidationError):
        return Promised(
            None,
            None,
            f"the privacy promise is not known: {beside.name} is damaged, or of another version",
        )
    if statement.schema_fingerprint != schema.fingerprint:
        return Promised(
            None,
            None,
            f"the privacy promise is not known: {beside.name} is of a release with another schema",
        )
    return _promised(statement, statement, beside.name)


def _promised(release: Bundle | Statement, statement: Statement, source: str) -> Promised:
    if statement.insecure:
        limitation = f"nothing is promised: {source} says NOT PRIVATE, its noise can be predicted"
        return Promised(release, None, limitation)
    if statement.drafted:
        limitation = (
            f"no bound: {source} says that the schema was taken from the data, and the privacy "
            "promise does not cover what it tells"
        )
        return Promised(release, None, limitation)
    rho = None if statement.delta_spent else statement.rho_spent
    promise = Promise(rho, statement.epsilon, statement.delta, source)
    return Promised(release, promise, None)
