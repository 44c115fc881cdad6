"""The release: what one run let out, and any number of tables sampled from it for free."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.arguments import natural_number, one_of, positive_integer, shown
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.generate import DEFAULT_GENERATOR, GENERATORS
from adaptive_qs.generate.loglinear import Rows
from adaptive_qs.generate.rows import Generator, SynthesisSettings, fit_model
from adaptive_qs.generate.targets import single_target
from adaptive_qs.loop.loop import LoopResult, Round
from adaptive_qs.machine import PhaseProgress, plan_workers
from adaptive_qs.privacy.accounting import mu_of
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.release.bundle import Bundle, unconnected_columns
from adaptive_qs.release.facts import TABLES
from adaptive_qs.release.statement import Manifest, RoundRecord, stated
from adaptive_qs.residual import is_measured, measured_variance
from adaptive_qs.table.archive import write_archive
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import decode
from adaptive_qs.table.files import NOT_PRIVATE, PRIVATE, STAMP_KEY, check_new
from adaptive_qs.table.inside import drawers_of
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import Formulas
from adaptive_qs.table.write import escapes_of
from adaptive_qs.workload.workload import Workload

COUNTED = 4
"""Standard deviations that make a number of rows: noise alone reaches them once in 30,000 runs."""
UNCOUNTED_ROWS = 1_000
"""Most rows of a table where their noisy number is nothing but noise, and none was asked for."""


@dataclass(frozen=True, eq=False)
class Marginal:
    """One marginal of a release.

    Attributes:
        columns: names, in the order of the schema.
        counts: estimated rows in each cell, with one axis for each column, in the order of codes.
        basis: "measured", where all that the marginal tells was measured: unbiased, with Gaussian
            noise; "partly measured", where what was not is filled by the reference; or "model",
            what the fitted model says: closer on average, but with an error that nobody knows.
        standard_error: of each cell where it was measured (rows); None otherwise.
    """

    columns: tuple[str, ...]
    counts: NDArray[np.float64]
    basis: Literal["measured", "partly measured", "model"]
    standard_error: float | None = None

    def table(self, schema: Schema, formulas: Formulas) -> pa.Table:
        """One row for each cell: the values or bins by their labels, then the count and, where the
        counts are measured, its standard error. The name of the count says if it is the model's.

        Args:
            schema: of the release.
            formulas: which labels are escaped that a spreadsheet program would run.
        """
        indices = np.indices(self.counts.shape).reshape(len(self.columns), -1)
        parts: dict[str, pa.Array] = {}
        for name, codes in zip(self.columns, indices):
            column = schema.column(name)
            escapes = escapes_of(column, schema, formulas)
            labels = [escapes.get(label, label) for label in column.labels_of_codes()]
            parts[name] = pa.array(labels, pa.string()).take(pa.array(codes))
        count = "fitted_count" if self.basis == "model" else "count"
        parts[_apart(count, parts)] = pa.array(self.counts.ravel())
        if self.basis != "model":
            errors = pa.array([self.standard_error] * self.counts.size, pa.float64())
            parts[_apart("standard_error", parts)] = errors
        return pa.table(parts)


def _apart(name: str, taken: Container[str]) -> str:
    """A name that no column has."""
    while name in taken:
        name = f"({name})"
    return name


@dataclass(frozen=True, eq=False, repr=False)
class Release(Bundle):
    """Everything that one run released: safe to share, reloadable, and sampled at no cost."""

    @classmethod
    def of_run(
        cls,
        result: LoopResult,
        schema: Schema,
        workload: Workload,
        mechanisms: Mechanisms,
        settings: Mapping[str, Any],
        privacy: tuple[float, float, float],
        watched_cells: int,
        most_rows: int,
    ) -> Self:
        """The release of a finished loop.

        Args:
            result: what the loop measured.
            schema: the public description of the columns.
            workload: the marginals that mattered.
            mechanisms: what the loop drew from; its ledger becomes the transcript.
            settings: how the loop was to spend, and what makes rows.
            privacy: ρ, and the (ε, δ) that it implies.
            watched_cells: most cells of the marginals watched while a table is refined.
            most_rows: most rows of a table whose number of rows is not asked for.
        """
        rho, epsilon, delta = privacy
        ledger = mechanisms.ledger
        events = ledger.events
        stamp = NOT_PRIVATE if mechanisms.entropy.insecure else PRIVATE
        manifest = Manifest(
            **stated(events, schema, TABLES, stamp),
            rho=rho,
            epsilon=epsilon,
            delta=delta,
            accountant="Gaussian DP" if ledger.filtered else "zCDP",
            mu=mu_of(rho) if ledger.filtered else None,
            settings=dict(settings),
            watched_cells=watched_cells,
            most_rows=most_rows,
            ledger=ledger.place,
            unconnected=unconnected_columns(workload, result.model.estimates),
        )
        rounds = tuple(_round_record(past, workload.domain) for past in result.rounds)
        model = result.model
        return cls(manifest, schema, workload, model.estimates, model.reference, rounds, events)

    @property
    def insecure(self) -> bool:
        """Whether the noise came from a seed, so that nothing here is private."""
        return self.manifest.insecure

    @property
    def num_rows(self) -> int:
        """The noisy number of rows, rounded, at least 1 and at most the planned ceiling.

        Where it is within ``COUNTED`` standard deviations of its noise from 0, it says nothing
        about the rows, and is ``UNCOUNTED_ROWS`` at most.
        """
        total, most = self._total[0], self.manifest.most_rows
        return max(1, round(min(total, most if self.counted else min(most, UNCOUNTED_ROWS))))

    @property
    def counted(self) -> bool:
        """Whether the noisy number of rows is more than noise."""
        total, std = self._total
        return total >= COUNTED * std

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the noisy number of rows says against the budget; empty where it says nothing."""
        (total, std), delta = self._total, self.manifest.delta
        if not self.counted:
            return (
                f"the number of rows, measured as {total:,.0f} +/- {std:,.0f}, is nothing but "
                f"noise: a table has {self.num_rows:,} rows unless their number is given, "
                "and its counts say little: raise epsilon",
            )
        if delta * total > 1:
            return (
                f"delta is {delta:g}, above one in the noisy number of rows, {total:,.0f}: a "
                "mechanism that publishes some row as it is may promise as much: give a delta far "
                "below one in the number of rows, such as 1e-9",
            )
        return ()

    @property
    def _total(self) -> tuple[float, float]:
        """The noisy number of rows and its standard deviation."""
        estimate = self.estimates[()]
        return float(estimate.values), estimate.precision**-0.5

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one zip of JSON and npy; the same release gives the same bytes.

        Raises:
            InputError: the file exists and is not to be replaced, or cannot be written.
        """
        check_new(path, force)
        from adaptive_qs.release.page import pages_of  # a run that saves no release draws none

        write_archive(path, (pages_of(self) | self.texts() | self.arrays()).items())

    def sample(
        self,
        num_rows: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
    ) -> CodedTable:
        """A synthetic table, in codes.

        Args:
            num_rows: rows wanted; None takes the noisy number of rows.
            seed: the same seed gives the same table on the same kind of machine with the same
                versions of the libraries; None takes one from the operating system.
            workers: threads; the table does not depend on it.
            progress: called in each phase.

        Raises:
            InputError: num_rows or workers is not positive, the seed is negative, or the release
                names a generator that this version does not have.
        """
        count = self.num_rows if num_rows is None else check_rows(num_rows)
        parts = self._parts(count, chosen_seed(seed), workers, progress)
        return CodedTable.from_parts(self.workload.domain, parts, count)

    def sample_table(
        self,
        num_rows: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
    ) -> pa.Table:
        """A synthetic table with values of the declared types; see :meth:`sample`.

        Its metadata carries the manifest's stamp.
        """
        return pa.concat_tables(self.sample_pages(num_rows, seed, workers, progress))

    def sample_pages(
        self,
        num_rows: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
    ) -> Iterator[pa.Table]:
        """The same table, page by page, drawn as they are asked for: memory holds a few pages."""
        count = self.num_rows if num_rows is None else check_rows(num_rows)
        seed = chosen_seed(seed)
        parts = self._parts(count, seed, workers, progress)
        stamp = {STAMP_KEY: self.manifest.stamp}
        model = self.model()
        drawers = drawers_of(self.schema.columns, lambda i: single_target(model, i).counts)
        slices = (
            rows[first : first + DECODED_ROWS]
            for rows in parts
            for first in range(0, len(rows), DECODED_ROWS)
        )
        for number, rows in enumerate(slices):
            codes = CodedTable.from_parts(self.workload.domain, [rows], len(rows))
            rng = np.random.default_rng((seed, 1, number))
            table = decode(codes, self.schema, rng, drawers)
            yield table.replace_schema_metadata(stamp)

    def marginals(self, columns: Iterable[Iterable[str]]) -> tuple[Marginal, ...]:
        """Marginals as they were measured, for sets of columns by name.

        Raises:
            SchemaError: a column that the schema lacks, or that is named twice.
            ResourceExceeded: more than ``MOST_CELLS`` cells in all.
        """
        model, found = self.model(), []
        for clique in self._asked(columns):
            whole = is_measured(self.estimates, clique, model.domain)
            found.append(
                Marginal(
                    model.domain.clique_names(clique),
                    np.asarray(model.marginal(clique), dtype=np.float64),
                    "measured" if whole else "partly measured",
                    measured_variance(model, clique) ** 0.5 if whole else None,
                )
            )
        return tuple(found)

    def fitted_marginals(
        self,
        columns: Iterable[Iterable[str]],
        seed: int = 0,
        workers: int = 1,
        progress: PhaseProgress | None = None,
    ) -> tuple[Marginal, ...]:
        """Marginals of the model that tables follow, without the error of drawing rows.

        No count is negative, and those of all sets agree with one distribution of rows, as near as
        the fit comes to one. They come from the release alone and cost nothing. How far they are
        from the truth depends on it, so they have no standard error.

        Args:
            columns: sets of columns by name.
            seed: of the fit's chains; the same seed gives the same numbers, as for :meth:`sample`.
            workers: threads; the numbers do not depend on it.
            progress: called with the phase "fit".

        Raises:
            SchemaError: a column that the schema lacks, or that is named twice.
            InputError: the seed is negative, or the release names a generator without such a model.
            ResourceExceeded: more than ``MOST_CELLS`` cells in all.
        """
        name = self.manifest.settings.get("generator", DEFAULT_GENERATOR)
        if name != DEFAULT_GENERATOR:
            raise InputError(
                f"the release was made for generator {shown(name)}, which fits no model that is "
                "known here: sample a table and count it"
            )
        asked = self._asked(columns)
        fitted = fit_model(
            self.model(), self._measured_cliques, self.workload.cliques, self.num_rows,
            chosen_seed(seed), self._synthesis, plan_workers(workers),
            progress and partial(progress, "fit"), asked,
        )  # fmt: skip
        domain, total = self.workload.domain, max(self._total[0], 1.0)
        return tuple(
            Marginal(domain.clique_names(c), total * fitted.marginal(c), "model") for c in asked
        )

    def _asked(self, columns: Iterable[Iterable[str]]) -> list[Clique]:
        """The sets of columns by their positions, where they are not too large."""
        domain = self.workload.domain
        asked = [domain.clique(names) for names in columns]
        cells = sum(map(domain.size, asked))
        if cells > MOST_CELLS:
            raise ResourceExceeded(
                f"the marginals have {cells:,} cells, and {MOST_CELLS:,} is the most: name fewer "
                "columns together"
            )
        return asked

    @property
    def _measured_cliques(self) -> list[Clique]:
        return [self.workload.domain.clique(past.clique) for past in self.rounds]

    @property
    def _synthesis(self) -> SynthesisSettings:
        return SynthesisSettings(watched_cells=self.manifest.watched_cells)

    def _parts(
        self, num_rows: int, seed: int, workers: int, progress: PhaseProgress | None
    ) -> Iterator[Rows]:
        """What the generator makes."""
        threads = plan_workers(workers)
        name = self.manifest.settings.get("generator", DEFAULT_GENERATOR)
        generate: Generator = GENERATORS[one_of("generator", name, GENERATORS)]
        return generate(
            self.model(),
            self._measured_cliques,
            self.workload.cliques,
            num_rows,
            seed,
            self._synthesis,
            threads,
            progress,
        )


MOST_CELLS = 2**24
"""Most cells of marginals that are asked for at a time."""
DECODED_ROWS = 2**16
"""Rows whose values are in memory at a time while a table is written."""


def check_rows(num_rows: int) -> int:
    """The number of rows of a table that is asked for.

    Raises:
        InputError: it is not a positive integer.
    """
    return positive_integer("the number of rows", num_rows)


def chosen_seed(seed: int | None) -> int:
    """The seed of a sampling: the one given, or one from the operating system.

    Raises:
        InputError: it is negative or no integer.
    """
    return secrets.randbits(63) if seed is None else natural_number("the seed", seed)


def _round_record(past: Round, domain: Domain) -> RoundRecord:
    return RoundRecord(
        clique=domain.clique_names(past.clique),
        noise_variances=tuple(
            (domain.clique_names(residual), variance)
            for residual, variance in past.measured.items()
        ),
        rho_selecting=past.budget.selecting,
        rho_measuring=past.budget.measuring,
        moved=past.moved,
        expected=past.expected,
        rescored=past.rescored,
    )
