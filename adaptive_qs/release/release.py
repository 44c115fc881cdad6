"""The release: what one run let out, and any number of tables sampled from it for free."""

from __future__ import annotations

import math
import secrets
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from adaptive_qs.arguments import natural_number, positive_integer
from adaptive_qs.cliques import Rows
from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.generate.check import Check, CheckedPages
from adaptive_qs.generate.rows import Fitted, SynthesisSettings, fit_model, synthesize_rows
from adaptive_qs.generate.targets import single_target
from adaptive_qs.generate.zeros import Zero, allowed_cells, select_inside
from adaptive_qs.loop.loop import LoopResult, Round
from adaptive_qs.machine import PhaseProgress, plan_workers
from adaptive_qs.pages.words import counted
from adaptive_qs.privacy.budget import PrivacyLoss
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.unit import Unit
from adaptive_qs.release.bundle import Bundle, list_resolutions, looked_at, unconnected_columns
from adaptive_qs.release.drawing import Drawing, SampleRequest
from adaptive_qs.release.facts import TABLES
from adaptive_qs.release.statement import Manifest, RoundRecord, derive_fields
from adaptive_qs.residual import is_measured, measured_variance
from adaptive_qs.table.archive import write_archive
from adaptive_qs.table.bin_density import build_drawers
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.files import NOT_PRIVATE, PRIVATE
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.text import Formulas
from adaptive_qs.table.write import escaped_names, find_escapes
from adaptive_qs.workload.workload import Workload

if TYPE_CHECKING:  # few schemas have rules
    from adaptive_qs.table.columns.base import Drawer

COUNTED = 4
"""Standard deviations that make a number of rows: noise alone reaches them once in 30,000 runs."""
UNCOUNTED_ROWS = 1_000
"""Maximum rows of a table whose noisy number of rows is mostly noise, if none is requested."""


@dataclass(frozen=True, eq=False)
class Marginal:
    """One marginal of a release.

    Attributes:
        columns: names, in the order of the schema.
        counts: estimated rows in each cell, with one axis for each column, in the order of codes.
        basis: "measured" as a whole: unbiased, with Gaussian noise; "partly measured", with the
            rest filled by the reference; or by the fitted "model": closer on average, with an
            unknown error.
        standard_errors: of the cells if it was measured (rows), shaped like ``counts`` or with axes
            of length 1 along which cells are alike; None otherwise.
    """

    columns: tuple[str, ...]
    counts: NDArray[np.float64]
    basis: Literal["measured", "partly measured", "model"]
    standard_errors: NDArray[np.float64] | None = None

    @property
    def standard_error(self) -> float | None:
        """Root mean square of the standard errors."""
        errors = self.standard_errors
        return None if errors is None else math.sqrt(np.square(errors).mean())

    def table(self, schema: Schema, formulas: Formulas) -> pa.Table:
        """Return one row for each cell: the labels, the count and, if measured, its standard error.

        The name of the count says if it is the model's. Labels and names that a spreadsheet program
        would run are escaped.
        """
        indices = np.indices(self.counts.shape).reshape(len(self.columns), -1)
        parts: dict[str, pa.Array] = {}
        written = escaped_names(self.columns, formulas)
        for name, safe, codes in zip(self.columns, written, indices):
            column = schema.column(name)
            escapes = find_escapes(column, schema, formulas)
            labels = [escapes.get(label, label) for label in column.labels_of_codes()]
            parts[safe] = pa.array(labels, pa.string()).take(pa.array(codes))
        count = "fitted_count" if self.basis == "model" else "count"
        parts[_apart(count, parts)] = pa.array(self.counts.ravel())
        if self.basis != "model":
            errors = np.full(self.counts.shape, np.nan)
            if self.standard_errors is not None:
                errors[...] = self.standard_errors
            parts[_apart("standard_error", parts)] = pa.array(errors.ravel(), from_pandas=True)
        return pa.table(parts)


def _apart(name: str, taken: Container[str]) -> str:
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
        loss: PrivacyLoss,
        watched_cells: int,
        most_rows: int,
    ) -> Self:
        """Return the release of a finished loop; ``loss`` is the budget of the run.

        Other arguments are as in :class:`Manifest`; the ledger of the mechanisms has the charges.
        """
        ledger = mechanisms.ledger
        events = ledger.events
        stamp = NOT_PRIVATE if mechanisms.entropy.insecure else PRIVATE
        model, unit = result.model, ledger.unit
        rounds = tuple(_round_record(past, model.domain, unit) for past in result.rounds)
        estimates = model.estimates
        filled = looked_at(model.domain, rounds)[0] if result.halves else []
        connected = [*map(model.domain.columns, model.estimates), *filled]
        manifest = Manifest(
            **derive_fields(events, schema, TABLES, stamp, unit, loss), settings=dict(settings),
            watched_cells=watched_cells, most_rows=most_rows, ledger=ledger.place,
            unconnected=unconnected_columns(workload, connected),
            resolutions=list_resolutions(rounds, model.domain),
        )  # fmt: skip
        return cls(
            manifest, schema, workload, estimates, model.reference, rounds, events,
            model.domain.groupings, result.strategies, tuple(result.halves),
        )  # fmt: skip

    @property
    def insecure(self) -> bool:
        """Whether the noise came from a seed, so that nothing here is private."""
        return self.manifest.insecure

    @property
    def num_rows(self) -> int:
        """The noisy number of rows, rounded, at least 1 and at most the planned ceiling.

        If it is mostly noise, it is ``UNCOUNTED_ROWS`` at most.
        """
        total, most = self._total[0], self.manifest.most_rows
        return max(1, round(min(total, most if self.counted else min(most, UNCOUNTED_ROWS))))

    @property
    def counted(self) -> bool:
        """Whether the noisy number of rows is more than noise."""
        total, std = self._total
        return total >= COUNTED * std

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the budget that follow from the noisy number of rows."""
        (total, std), delta = self._total, self.manifest.delta
        if not self.counted:
            return (
                f"The measured number of rows, {total:,.0f} ± {std:,.0f}, is mostly noise. The "
                f"table has {counted(self.num_rows, 'row')} (set --rows to change this), and its "
                "counts are not reliable. Raise epsilon.",
            )
        if delta * total > 1:
            return (
                f"delta {delta:g} is large. With {total:,.0f} rows (noisy), even publishing a "
                "random row would satisfy it. Choose a delta far below 1 / number of rows, such "
                "as 1e-9.",
            )
        return ()

    @property
    def _total(self) -> tuple[float, float]:
        estimate = self.estimates[()]
        return float(estimate.values), estimate.precision**-0.5

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write one zip of JSON and npy; the same release gives the same bytes.

        Raises:
            InputError: the file exists and is not to be replaced, or cannot be written.
        """
        write_archive(path, self.members(), force)

    def members(self, folder: str = "") -> Iterator[tuple[str, Any]]:
        """Yield the members of a bundle by name, pages for people first."""
        from adaptive_qs.release.page import build_pages  # a run that saves no release draws none

        for name, part in (build_pages(self) | self.texts() | self.arrays()).items():
            yield f"{folder}{name}", part

    def sample(self, *args: Any, **options: Any) -> CodedTable:
        """Return a synthetic table, in codes; the arguments are as for :meth:`draw`."""
        return self.draw(*args, **options).coded()

    def draw(
        self,
        num_rows: int | None = None,
        seed: int | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
        where: str | None = None,
    ) -> Drawing:
        """Return a synthetic table that is drawn page by page: memory holds a few pages.

        With a condition, it has the rows of the model that meet it: they are not searched for among
        others, so that rare ones take no longer than frequent ones. Other arguments are as for
        :meth:`~adaptive_qs.release.tables.ReleaseSet.draw`.
        """
        if num_rows is not None:
            num_rows = check_rows(num_rows)
        seed = chosen_seed(seed)
        schema, stamp, model = self.schema, self.manifest.stamp, self.model()
        drawers = build_drawers(schema.columns, lambda i: single_target(model, i).counts)
        if where is None:
            count = self.num_rows if num_rows is None else num_rows
            parts = synthesize_rows(
                model, self._measured_cliques, self.workload.weights, count, seed,
                self._synthesis, plan_workers(workers), progress, self.zeros,
            )  # fmt: skip
            checked = CheckedPages(parts, self.check(), seed)
            return Drawing(schema, count, checked, seed, stamp, drawers)
        return self._draw_selected(num_rows, seed, workers, progress, where, drawers)

    def _draw_selected(
        self,
        num_rows: int | None,
        seed: int,
        workers: int,
        progress: PhaseProgress | None,
        where: str,
        drawers: Mapping[str, Drawer],
    ) -> Drawing:
        """Return a table of the rows that meet a condition."""
        from adaptive_qs.generate.linked import NoRowsError, select_boxes  # few tables need it

        schema, domain = self.schema, self.workload.domain
        ruled = [(domain.clique_names(zero.clique), zero.allowed) for zero in self.zeros]
        wish = SampleRequest.of(where, schema, ruled)
        named = {i for box in wish.boxes for i in box}
        fitted = self._fitted(self.num_rows, seed, workers, progress, kept=named)
        expected = num_rows or 2**14  # their number is not known yet
        try:
            selected = select_boxes(domain, fitted, wish.boxes, expected, self.zeros)
        except NoRowsError:
            raise InputError(f"the release has no rows with {where}: ask for others") from None
        share, total = min(selected.share, 1.0), max(self._total[0], 1.0)
        count = max(round(self.num_rows * share), 1) if num_rows is None else num_rows
        parts = selected.draw(
            count, self._synthesis.refine_passes, plan_workers(workers),
            progress and partial(progress, "draw"),
        )  # fmt: skip
        warnings = wish.warnings(selected.share, total)
        checked = CheckedPages(parts, self.check(selected=named), seed)
        return Drawing(
            schema, count, checked, seed, self.manifest.stamp, drawers, wish.where, share, warnings
        )

    def marginals(self, columns: Iterable[Iterable[str]]) -> tuple[Marginal, ...]:
        """Return marginals as they were measured, for sets of columns by name.

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
                    np.sqrt(measured_variance(model, clique)) if whole else None,
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
        """Return marginals of the model that tables follow, without the error of drawing rows.

        No count is negative, and the counts of all sets agree with one distribution of rows, as
        near as the fit comes to one. Their error is not known. The seed is that of the fit's
        chains.

        Raises:
            SchemaError: a column that the schema lacks, or that is named twice.
            InputError: the seed is negative.
            ResourceExceeded: more than ``MOST_CELLS`` cells in all.
        """
        requested = self._asked(columns)
        fitted = self._fitted(self.num_rows, chosen_seed(seed), workers, progress, requested)
        domain, total = self.workload.domain, max(self._total[0], 1.0)
        return tuple(
            Marginal(domain.clique_names(c), total * fitted.marginal(c), "model") for c in requested
        )

    def _fitted(
        self,
        num_rows: int,
        seed: int,
        workers: int,
        progress: PhaseProgress | None,
        requested: Sequence[Clique] = (),
        kept: Iterable[int] = (),
    ) -> Fitted:
        return fit_model(
            self.model(), self._measured_cliques, self.workload.weights, num_rows, seed,
            self._synthesis, plan_workers(workers), progress and partial(progress, "fit"),
            requested, self.zeros, kept,
        )  # fmt: skip

    def check(self, selected: Iterable[int] = (), given: Iterable[int] = ()) -> Check:
        """Return the measured marginals that drawn rows are compared with."""
        model, settings = self.model(), self._synthesis
        return Check(model, self._measured_cliques, self.zeros, selected, given, settings)

    def linked(
        self,
        given: Rows,
        seed: int,
        workers: int = 1,
        progress: PhaseProgress | None = None,
        population: Rows | None = None,
    ) -> Iterator[Rows]:
        """Yield rows that have the given codes in the first columns, in this order, part by part.

        If some rows were chosen by these codes, ``population`` has the codes of all rows.
        """
        from adaptive_qs.generate.linked import linked_rows

        return linked_rows(
            self.model(), self._measured_cliques, self.workload.cliques, given, seed,
            self._synthesis, plan_workers(workers), progress, self.zeros, population,
        )  # fmt: skip

    def _asked(self, columns: Iterable[Iterable[str]]) -> list[Clique]:
        """Return the sets of columns by their positions; refuse too many cells."""
        domain = self.workload.domain
        requested = [domain.clique(names) for names in columns]
        cells = sum(map(domain.size, requested))
        if cells > MOST_CELLS:
            raise ResourceExceeded(
                f"the marginals have {cells:,} cells, and {MOST_CELLS:,} is the most: name fewer "
                "columns together"
            )
        return requested

    @property
    def _measured_cliques(self) -> list[Clique]:
        return [self.domain.clique_at(past.clique, past.groups) for past in self.rounds]

    @cached_property
    def zeros(self) -> tuple[Zero, ...]:
        """The cells that rules leave empty."""
        if (ruleset := self.schema.ruleset) is None:
            return ()
        found: dict[Clique, NDArray[np.bool_]] = {}
        for cells in (*ruleset.cells, *ruleset.ties):  # rules on the same columns together
            clique = self.workload.domain.clique(cells.names)
            found[clique] = cells.allowed & found.get(clique, True)
        zeros = [Zero(clique, allowed) for clique, allowed in found.items()]
        for k, zero in enumerate(zeros):  # with the zeros inside, lists of its cells are shorter
            inside = select_inside(zeros, zero.clique)
            allowed = allowed_cells(inside, self.workload.domain, zero.clique)
            zeros[k] = zero if allowed is None else Zero(zero.clique, allowed)
        ties = [{*self.workload.domain.clique(cells.names)} for cells in ruleset.ties]
        return tuple(z for z in zeros if not any({*z.clique} < tie for tie in ties))

    @property
    def _synthesis(self) -> SynthesisSettings:
        return SynthesisSettings(watched_cells=self.manifest.watched_cells)


MOST_CELLS = 2**24
"""Maximum cells of marginals that are requested together."""


def check_rows(num_rows: int) -> int:
    """Return a requested number of rows; raise InputError if it is no positive integer."""
    return positive_integer("the number of rows", num_rows)


def chosen_seed(seed: int | None) -> int:
    """Return the given seed, or a random one; InputError if it is negative or no integer."""
    return secrets.randbits(63) if seed is None else natural_number("the seed", seed)


def _round_record(past: Round, domain: Domain, unit: Unit) -> RoundRecord:
    charged = unit.group**2
    return RoundRecord(
        clique=domain.clique_names(past.clique),
        groups=domain.shape(past.clique),
        noise_variances=tuple(
            (domain.clique_names(residual), domain.shape(residual), variance)
            for residual, variance in past.measured.items()
        ),
        rho_selecting=past.budget.selecting * charged,
        rho_measuring=past.budget.measuring * charged,
        moved=past.moved,
        expected=past.expected,
        rescored=past.rescored,
    )
