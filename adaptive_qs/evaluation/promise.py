"""What the release of a synthetic table promised, and whether the table contradicts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.checks import (
    Check,
    Column,
    Comparison,
    Finding,
    Grade,
    Table,
    Word,
    format_names,
    named,
    number,
)
from adaptive_qs.generate.check import CheckedPages
from adaptive_qs.pages.words import significant
from adaptive_qs.release.bundle import Bundle, manifest_path, read_sidecar
from adaptive_qs.release.drawing import Contradiction, contradictions
from adaptive_qs.release.statement import Manifest, Statement
from adaptive_qs.table.schema import Schema


@dataclass(frozen=True)
class Promise:
    """What a release promised: zCDP, the epsilon implied at delta, and where that was read, such
    as the name of a manifest."""

    rho: float | None
    epsilon: float | None
    delta: float | None
    source: str


@dataclass(frozen=True, eq=False)
class Promised:
    """What is known of the release behind a table.

    Attributes:
        release: the bundle, or the statement that lay beside the table; None where there is none.
        promise: that it makes; None where it is not known, or nothing is promised.
        limitation: why there is no promise, for the reader.
        sampling: how the table was drawn, as the statement next to it says; empty without one.
    """

    release: Bundle | Statement | None = None
    promise: Promise | None = None
    limitation: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def statement(self) -> Statement | None:
        """The statement of the release, if it is known."""
        return self.release.manifest if isinstance(self.release, Bundle) else self.release

    @property
    def unconnected(self) -> tuple[str, ...]:
        """Columns of which no combination was measured, if the release is known."""
        return self.release.manifest.unconnected if isinstance(self.release, Bundle) else ()


def find_promise(
    release: str | Path | Bundle | None,
    synthetic: str | Path | None,
    schema: Schema,
    max_memory: int | str | None = None,
) -> Promised:
    """Find the promise of a release, or else of the statement next to the synthetic table.

    The promise is that of the budget that was spent, which can be less than the whole. If part of δ
    was spent on discovering values, only (ε, δ) is given. A release that was made with another
    schema is not that of the table. If the schema was taken from the data, nothing is promised: the
    promise does not cover what the schema reveals.

    Args:
        release: the release or its path, if one was named.
        synthetic: path of the table; None if it is no file.
        schema: of the table, as it is compared.
        max_memory: ceiling of the process's memory while the release is read.

    Raises:
        InputError: the release cannot be read, or was made with another schema.
        ResourceExceeded: reading it would take more memory.
    """
    sampling: Mapping[str, Any] = {}
    known: Bundle | Statement
    beside = None if synthetic is None else manifest_path(synthetic)
    content = _read_statement(beside, max_memory)
    if isinstance(content.get("sampling"), dict):
        sampling = content["sampling"]
    if release is not None:
        from adaptive_qs.release.release import Release  # slow to import

        given = isinstance(release, Bundle)
        known = release if isinstance(release, Bundle) else Release.load(release, max_memory)
        source = "the release" if given else Path(str(release)).name
        statement: Statement = known.manifest
        if statement.schema_fingerprint != schema.fingerprint:
            raise InputError(
                f"{source if given else release}: was made with another schema: name the release "
                "that the synthetic table comes from, and give it as --schema, too"
            )
    elif beside is None or not exists(beside):
        return _unknown("no --release was given, and no statement is next to the synthetic table")
    else:
        source = beside.name
        try:
            fields = {key: value for key, value in content.items() if key in Manifest.model_fields}
            known = statement = Manifest.model_validate(fields)
        except (AttributeError, ValidationError):
            return _unknown(f"{source} is damaged, or of another version")
        if statement.schema_fingerprint != schema.fingerprint:
            return _unknown(
                f"{source} is of a release with another schema, such as one in which values were "
                "learnt: name the release as the schema"
            )
    if statement.insecure:
        reason = f"nothing is promised: {source} says NOT PRIVATE, its noise can be predicted"
        return Promised(known, None, reason, sampling)
    if statement.drafted:
        reason = f"no bound: {source} says that the schema was taken from the data, and the privacy"
        reason += " promise does not cover what it reveals"
        return Promised(known, None, reason, sampling)
    rho = None if statement.delta_spent else statement.rho_spent
    promise = Promise(rho, statement.epsilon, statement.delta, source)
    return Promised(known, promise, None, sampling)


def _read_statement(path: Path | None, max_memory: int | str | None) -> dict[str, Any]:
    """Return the statement next to a table; empty if there is none, or it is damaged."""
    if path is None or not exists(path):
        return {}
    try:
        return read_sidecar(path, max_memory)
    except InputError:
        return {}


def _unknown(reason: str) -> Promised:
    return Promised(limitation=f"the privacy promise is not known: {reason}")


def why_no_promise(statement: Statement | None) -> str | None:
    """Return why nothing can be said of a promise, without a full stop; None if there is one."""
    if statement is None:
        return "The promise behind the table is not known"
    if statement.insecure:
        return "Nothing is promised: the noise came from a seed, and can be predicted"
    if statement.drafted:
        return "The promise does not cover what the schema reveals, which was taken from the data"
    return None


# Whether the table contradicts its release.

FAR_OFF = 0.05
"""Share of the rows by which a cell contradicts the release badly."""
NAMED_CELLS = 2
"""Maximum number of cells in the sentence."""


class ReleaseCheck(Check):
    """Whether the table has the counts that were measured, to within chance.

    A table that contradicts its release was drawn wrongly: its errors are more than noise.
    """

    name, title, about, shown = "release", "Agreement with the release", "release", "always"
    rules = (
        Word("contradicted", "poor", lambda part: part >= FAR_OFF),
        Word("contradicted", "fair", lambda part: part > 0),
        Word("agrees", "good"),
    )  # fmt: skip

    def measure(self, comparison: Comparison) -> tuple[Contradiction, ...] | None:
        return find_contradictions(comparison)

    def judge(self, facts: tuple[Contradiction, ...] | None, evaluation: Any) -> Finding | None:
        unconnected = evaluation.comparison.promised.unconnected
        advice: tuple[str, ...] = ()
        if unconnected:
            names = format_names(unconnected, "unconnected")
            advice = (f"No combination with {names} was measured: use coarser bins, fewer values "
                      "or more budget.",)  # fmt: skip
        if not facts:
            return Finding("good", "agrees", advice=advice)
        rows = evaluation.pair.true.num_rows
        part = max(abs(c.drawn - c.measured) for c in facts) / rows
        cells = named([str(cell) for cell in facts], "contradictions", NAMED_CELLS)
        text = (
            f"The table contradicts its release by more than chance allows: {cells}. Do not use "
            "these counts."
        )
        step = "Draw the table with another seed, or check the rules of the schema."
        uses = {"single columns" if len(c.columns) == 1 else "pairs of columns" for c in facts}
        caps: dict[str, Grade] = dict.fromkeys((*uses, "the workload"), "fair")
        columns = (
            Column("cell"), number("measured", significant), number("drawn", significant),
            number("standard errors", significant),
        )  # fmt: skip
        lines = [
            (" and ".join(f"{n} = {v}" for n, v in zip(c.columns, c.cell)), c.measured, c.drawn,
             c.standard_errors)
            for c in facts
        ]  # fmt: skip
        caption = "Cells in which the table is further from the release than chance allows, in rows"
        figures = (Table(caption, columns, lines, "contradictions"),)
        found = self.word_for(part)
        return Finding(*found, text, figures=figures, advice=(step, *advice), caps=caps)

    def as_json(self, facts: tuple[Contradiction, ...] | None) -> Mapping[str, Any]:
        return {"contradictions": facts}


def find_contradictions(comparison: Comparison) -> tuple[Contradiction, ...] | None:
    """Return the cells in which the table is further from its release than chance allows.

    If the release is known and all of its rows could be drawn, the table is compared with it.
    Otherwise, the statement next to the table says what was found when it was drawn.

    Returns:
        The cells; None if neither is known.
    """
    from adaptive_qs.release.release import Release  # slow to import

    promised = comparison.promised
    release, sampling = promised.release, promised.sampling
    if isinstance(release, Release) and not sampling.keys() & {"where", "balance", "root_rows"}:
        check = release.check()
        pages = CheckedPages((), check, seed=0)
        rows = np.column_stack(comparison.pair.synthetic.columns)
        pages.gaps = {gap.clique: gap for gap in check.gaps(rows)}
        return contradictions(pages, release.schema)
    if promised.release is None or not sampling:
        return None
    try:
        return _CONTRADICTIONS.validate_python(sampling.get("contradictions") or ())
    except ValidationError:
        return None


_CONTRADICTIONS = TypeAdapter(tuple[Contradiction, ...])
