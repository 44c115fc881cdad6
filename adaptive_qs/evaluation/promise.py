"""The promise of the release behind a synthetic table, and whether the table contradicts it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import exists  # Path.exists raises if a name is too long
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Grade, Word
from adaptive_qs.generate.check import CheckedPages
from adaptive_qs.pages.words import significant
from adaptive_qs.release.bundle import Bundle, manifest_path, read_sidecar
from adaptive_qs.release.drawing import Contradiction, contradictions
from adaptive_qs.release.statement import Manifest, Statement
from adaptive_qs.table.schema import Schema


@dataclass(frozen=True, eq=False)
class Promised:
    """The release behind a table, and its promise.

    If the schema was taken from the data, nothing is promised: the promise does not cover what the
    schema reveals.

    Attributes:
        release: the bundle, or the statement next to the table; None if there is neither.
        source: name of the release, or the reason why it is not known.
        sampling: how the table was drawn, as the statement next to it says.
    """

    release: Bundle | Statement | None = None
    source: str = "no release was given, and no statement is next to the synthetic table"
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def statement(self) -> Statement | None:
        """The statement of the release, if it is known."""
        return self.release.manifest if isinstance(self.release, Bundle) else self.release

    @property
    def limitation(self) -> str | None:
        """The reason why there is no promise, without a full stop."""
        if self.statement is None:
            return f"The privacy promise is not known: {self.source}"
        if self.statement.insecure:
            return f"Nothing is promised: {self.source} says NOT PRIVATE, its noise is known"
        if self.statement.drafted:
            return (
                "The promise does not cover what the schema reveals, which was taken from the "
                f"data as {self.source} says"
            )
        return None

    @property
    def promise(self) -> Statement | None:
        """The statement of the release, if it promises something."""
        return None if self.limitation is not None else self.statement


def find_promise(
    release: str | Path | Bundle | None,
    synthetic: Any,
    schema: Schema,
    max_memory: int | str | None = None,
) -> Promised:
    """Find the promise of a release, or else of the statement next to the synthetic table.

    Raises:
        InputError: the release cannot be read, or was made with another schema.
        ResourceExceeded: reading it would take more than ``max_memory``.
    """
    sidecar = manifest_path(synthetic) if isinstance(synthetic, str | Path) else None
    content: dict[str, Any] = {}
    if sidecar is not None and exists(sidecar):
        with suppress(InputError):  # which is damaged
            content = read_sidecar(sidecar, max_memory)
    found: Bundle | Statement
    if release is not None:
        from adaptive_qs.release.release import Release  # slow to import

        given = isinstance(release, Bundle)
        found = release if isinstance(release, Bundle) else Release.load(release, max_memory)
        source = "the release" if given else Path(str(release)).name
        if found.manifest.schema_fingerprint != schema.fingerprint:
            raise InputError(
                f"{source if given else release}: was made with another schema: name the release "
                "that the synthetic table comes from, and give it as --schema, too"
            )
    elif sidecar is None or not exists(sidecar):
        return Promised()
    else:
        source = sidecar.name
        try:
            fields = {key: value for key, value in content.items() if key in Manifest.model_fields}
            found = Manifest.model_validate(fields)
        except ValidationError:
            return Promised(source=f"{source} is damaged, or of another version")
        if found.schema_fingerprint != schema.fingerprint:
            return Promised(
                source=f"{source} is of a release with another schema, such as one in which values "
                "were learnt: name the release as the schema"
            )
    sampling = content.get("sampling")
    return Promised(found, source, sampling if isinstance(sampling, dict) else {})


# Whether the table contradicts its release.


class ReleaseCheck(Check):
    """Whether the table has the counts that were measured, to within chance.

    A table that contradicts its release was drawn wrongly: its errors are more than noise.
    """

    name, title, about, shown = "release", "Agreement with the release", "release", "always"
    rules = (
        Word("contradicted", "poor", lambda part: part >= 0.05),
        Word("contradicted", "fair", lambda part: part > 0),
        Word("agrees", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[Contradiction, ...] | None:
        """Return the cells that differ from the release by more than chance allows, if known.

        If the release is known and could draw all rows, the table is compared with it. Otherwise,
        the statement next to the table has the cells that were found when it was drawn.
        """
        from adaptive_qs.release.release import Release  # slow to import

        release, sampling = comparison.promised.release, comparison.promised.sampling
        if isinstance(release, Release) and not sampling.keys() & {"where", "root_rows"}:
            check = release.check()
            pages = CheckedPages((), check, seed=0)
            rows = np.column_stack(comparison.pair.synthetic.columns)
            pages.gaps = {gap.clique: gap for gap in check.gaps(rows)}
            return contradictions(pages, release.schema)
        if release is None or not sampling:
            return None
        try:
            cells = TypeAdapter(tuple[Contradiction, ...])
            return cells.validate_python(sampling.get("contradictions") or ())
        except ValidationError:
            return None

    def judge(self, facts: tuple[Contradiction, ...] | None, evaluation: Any) -> Finding | None:
        """Return how many rows the worst cell is off."""
        advice: tuple[str, ...] = ()
        release = evaluation.comparison.promised.release
        if isinstance(release, Bundle) and release.manifest.unconnected:
            names = checks.format_names(release.manifest.unconnected)
            advice = (f"No combination with {names} was measured: use coarser bins, fewer values "
                      "or more budget.",)  # fmt: skip
        if not facts:
            return Finding("good", "agrees", advice=advice)
        cells = checks.named([str(cell) for cell in facts], most=2)
        text = (
            f"The table contradicts its release by more than chance allows: {cells}. Do not use "
            "these counts."
        )
        step = "Draw the table with another seed, or check the rules of the schema."
        uses = {"single columns" if len(c.columns) == 1 else "pairs of columns" for c in facts}
        caps: dict[str, Grade] = dict.fromkeys((*uses, "the workload"), "fair")
        columns = (
            checks.Column("cell"),
            *(checks.number(h, significant) for h in ("measured", "drawn", "standard errors")),
        )
        lines = [
            (" and ".join(f"{n} = {v}" for n, v in zip(c.columns, c.cell)), c.measured, c.drawn,
             c.standard_errors)
            for c in facts
        ]  # fmt: skip
        caption = "Cells in which the table is further from the release than chance allows, in rows"
        figures = (checks.Table(caption, columns, lines),)
        part = max(abs(c.drawn - c.measured) for c in facts) / evaluation.pair.true.num_rows
        found = self.word_for(part)
        return Finding(*found, text, figures=figures, advice=(step, *advice), caps=caps)

    def as_json(self, facts: tuple[Contradiction, ...] | None) -> Mapping[str, Any]:
        """Return the cells."""
        return {"contradictions": facts}
