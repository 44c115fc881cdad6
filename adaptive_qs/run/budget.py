"""What a run may use and is to measure: its budget, its memory, and the plan for each table."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, Protocol, Self, TypeVar

from adaptive_qs.arguments import positive_number
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.machine import PROCESS_BYTES, ROWS_SHARE, memory_bytes
from adaptive_qs.privacy import accounting
from adaptive_qs.privacy import budget as budgets
from adaptive_qs.privacy.accounting import bound_advantage, compute_epsilon, compute_mu, compute_rho
from adaptive_qs.privacy.budget import BudgetWarning, PrivacyLoss, check_budget_warnings, delta_left
from adaptive_qs.privacy.events import UNITS_PER_RHO, Cost
from adaptive_qs.privacy.unit import ROWS, Unit
from adaptive_qs.run.options import BudgetOptions, RunOptions
from adaptive_qs.table.coded import MAX_ROWS
from adaptive_qs.table.engines import SCHEDULED, EngineOptions
from adaptive_qs.table.schema import Schema, check_reviewed

MIN_RHO, MAX_RHO = 1e-12, 1e12
"""Budgets of tables outside lead to noise that no exact sampler can draw."""
MAX_FILTERED = 64.0
"""ρ up to which budgets of tables are accounted for exactly; above it nothing is gained, and noise
may be too narrow for it."""
MAX_LEARNING = 2.0**-7
"""Likewise of what learning one column takes: the variance of its noise is 64 at least."""
MOST_LEARNING = 0.8
"""Likewise of the part of ρ that learning takes in all: noise of that variance counts as up to a
sixth more there."""
MIN_COST, MAX_COST = 1e-10, 1e6
"""Likewise of answers, as costs β."""
MIN_EPSILON, MAX_EPSILON = 1e-12, 1e9
"""Below them, or above, exact Gaussian DP is not shown for discrete noise, or costs too much."""

# Where all noise is Gaussian, the budget is that of exact Gaussian DP: its cost β = μ² = 2ρ is the
# largest μ² whose curve δ(ε) meets the requested (ε, δ), 8-15 % more than through zCDP.
#
# Discrete noise makes δ larger by a share of at most 2⁻²¹ (docs/proofs.md, section 4), which SLACK
# covers.

SLACK = 2.0**-20
"""Share of δ set aside for the noise being discrete."""


@dataclass(frozen=True)
class PrivacyTarget:
    """A budget and the (ε, δ) that it implies.

    Attributes:
        rho: the budget in zCDP.
        epsilon: ε of the whole run at this δ.
        discovery_share: part of δ for discovering values; the rest converts ρ to ε.
        gaussian: whether (ε, δ) is that of exact Gaussian DP; of zCDP otherwise.
        filtered: whether steps are chosen one after the other, so that the exact Gaussian DP is
            that of the filter of :mod:`adaptive_qs.privacy.accounting`.
        kept: part of the whole budget that ``rho`` is: what learning leaves, and of that what may
            be spent on single rows.
    """

    rho: float
    epsilon: float
    delta: float
    discovery_share: Fraction = Fraction(0)
    gaussian: bool = False
    filtered: bool = False
    kept: float = 1.0
    unit: Unit = ROWS

    @classmethod
    def of(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        discovery_share: Fraction | None = None,
        column_share: float = 0.0,
        learning_share: float = 0.0,
    ) -> Self:
        """Return the budget of tables, given either as (epsilon, delta) or as rho.

        It is that of exact Gaussian DP, or of zCDP where it exceeds ``MAX_FILTERED``, what
        learning a column takes of it ``MAX_LEARNING``, or all learning ``MOST_LEARNING``.

        Args:
            epsilon: ε of the whole run.
            delta: δ, by default 1e-9; with rho it only says where the implied ε is reported.
            rho: the budget ρ instead of ``epsilon``.
            discovery_share: part of δ set aside for discovering values; None for none.
            column_share: part of ρ for learning the bins or values of one column.
            learning_share: part of ρ for learning all of them.

        Raises:
            InputError: both or neither of epsilon and rho, or a value out of range.
        """
        if (epsilon is None) == (rho is None):
            came = "No privacy budget is set" if rho is None else "Both epsilon and rho are set"
            raise InputError(f"{came}. Use one of epsilon and rho.")
        share = discovery_share or Fraction(0)
        target = replace(cls._of(epsilon, delta, rho, share, gaussian=True), filtered=True)
        narrow = target.rho > MAX_FILTERED or target.rho * column_share > MAX_LEARNING
        if narrow or learning_share > MOST_LEARNING:
            target = cls._of(epsilon, delta, rho, share, gaussian=False)
        if not MIN_RHO <= target.rho <= MAX_RHO:
            raise InputError(
                f"The budget is rho {target.rho:.3g} (zCDP). Use a rho from {MIN_RHO:g} (below it, "
                f"everything is noise) to {MAX_RHO:g} (above it, nothing is)."
            )
        return target._with_epsilon(epsilon)

    @classmethod
    def of_answers(
        cls,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        cost: float | None = None,
        discovery_share: Fraction | None = None,
    ) -> Self:
        """Return the budget of answers, given as (epsilon, delta), as rho, or as the privacy cost.

        Args:
            epsilon: As for :meth:`of`.
            delta: Likewise.
            rho: Likewise.
            cost: the privacy cost β = 2ρ of He et al., instead of ``epsilon``.
            discovery_share: where bins or values are learnt first, the part of δ set aside for
                values; the budget is then that of zCDP. None where all noise is Gaussian.

        Raises:
            InputError: not exactly one of epsilon, rho and cost, or a value out of range.
        """
        given = {"epsilon": epsilon, "rho": rho, "cost": cost}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            came = " and ".join(named) + " are set" if named else "No privacy budget is set"
            raise InputError(f"{came}. Use exactly one of epsilon, rho and cost.")
        if cost is not None:
            rho = positive_number("cost", cost) / 2
        share = discovery_share or Fraction(0)
        target = cls._of(epsilon, delta, rho, share, gaussian=discovery_share is None)
        if not MIN_COST <= target.cost <= MAX_COST:
            (name,) = named
            means = "" if name == "cost" else f", which is a privacy cost of {target.cost:.3g}"
            do, limit, side, leaves = "Lower", MAX_COST, "above", "no noise"
            if target.cost < MIN_COST:
                do, limit, side, leaves = "Raise", MIN_COST, "below", "only noise"
            raise InputError(
                f"{name} is {float(given[name] or 0):.6g}{means}. {do} it: "
                f"a cost {side} {limit:g} leaves {leaves}."
            )
        return target._with_epsilon(epsilon)

    @classmethod
    def _of(
        cls,
        epsilon: float | None,
        delta: float | None,
        rho: float | None,
        discovery_share: Fraction,
        gaussian: bool,
    ) -> Self:
        """One of epsilon and rho as ρ, in whatever range; ε is still to be found."""
        target = cls(0.0, 0.0, budgets.choose_delta(delta), discovery_share, gaussian)
        left = target._converting
        if epsilon is None:
            return replace(target, rho=positive_number("rho", rho))
        epsilon = positive_number("epsilon", epsilon)
        if not gaussian:
            return replace(target, rho=compute_rho(epsilon, left))
        if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
            return replace(target, rho=math.inf if epsilon > 1 else 0.0)
        beta = math.nextafter(accounting.compute_gaussian_mu(epsilon, left) ** 2, 0.0)
        return replace(target, rho=beta / 2)

    @property
    def _converting(self) -> float:
        """The part of δ that turns ρ into ε."""
        left = delta_left(self.delta, Fraction(self.delta) * self.discovery_share)
        return left * (1 - SLACK) if self.gaussian else left

    def _with_epsilon(self, requested: float | None) -> Self:
        if requested is None and self.gaussian:
            return replace(
                self,
                epsilon=accounting.compute_gaussian_epsilon(compute_mu(self.rho), self._converting),
            )
        implied = (
            compute_epsilon(self.rho, self._converting) if requested is None else float(requested)
        )
        return replace(self, epsilon=implied)

    @property
    def cost(self) -> float:
        """β = μ² = 2ρ, the privacy cost of He et al.; exact Gaussian DP with μ = √β."""
        return 2 * self.rho

    @property
    def advantage(self) -> float:
        """A bound of the true less the false positive rate of any attack."""
        rho = self.rho / self.kept
        mu = compute_mu(rho) if self.gaussian else None
        return bound_advantage(rho, mu, self.delta * float(self.discovery_share))

    @property
    def loss(self) -> PrivacyLoss:
        """The promise, as statements and ledgers have it."""
        mu = compute_mu(self.rho) if self.gaussian else None
        return PrivacyLoss(self.rho, self.epsilon, self.delta, mu)

    @property
    def budget(self) -> Cost:
        """The budget and the share of δ in whole units, rounded down."""
        return Cost.within(self.rho, Fraction(self.delta) * self.discovery_share)

    @property
    def units(self) -> int:
        """The budget in units of 2**-60 ρ, rounded down."""
        return math.floor(Fraction(self.rho) * UNITS_PER_RHO)

    def protecting(self, unit: Unit) -> Self:
        """Return the same promise to another unit.

        InputError is raised if what it leaves for measurements of single rows is nothing but noise.
        """
        target = replace(self, unit=unit)
        if unit.group > 1 and (left := float(unit.for_rows(self.budget).rho)) < MIN_COST / 2:
            raise InputError(
                f"The budget of rho {self.rho:.3g} for {unit.name} is {left:.3g} for a row, which "
                "leaves only noise. Raise the budget, or let fewer rows of a person count."
            )
        return target

    def within(self, remaining: Cost) -> Self:
        """Return the same promise, with what rows may cost if this much of the budget is left."""
        rows = self.unit.for_rows(remaining)
        rho = min(self.rho / self.unit.group**2, budgets.float_below(rows.rho))
        return replace(self, rho=rho, kept=rho / self.rho)

    def at(self, epsilon: float) -> Self:
        """Return the same budget of answers at another ε; InputError if it is out of range."""
        share = None if self.gaussian else self.discovery_share
        target = self.of_answers(epsilon, self.delta, discovery_share=share)
        return replace(target, rho=self.kept * target.rho, kept=self.kept, unit=self.unit)


def resolve_budget(
    schema: Schema,
    options: BudgetOptions,
    budget: Callable[[Fraction | None], PrivacyTarget],
    unit: Unit | None = None,
) -> tuple[PrivacyTarget, Cost]:
    """Return the budget of a run and the cost of learning.

    ``budget`` returns the budget, given the part of δ for discovering values; None if nothing is
    learnt. The unit is by default the one that the schema and the options name. InputError is
    raised if the budget is out of range or too small to learn from, or if a person column and the
    number of rows that count do not go together.
    """
    unit = unit or Unit.of(schema.person, options.rows_per_person, options.neighbours)
    if not schema.open_columns:
        return budget(None).protecting(unit), Cost()
    from adaptive_qs.learn.schema import column_costs, discovery_share, preprocessing_cost

    target = budget(discovery_share(schema)).protecting(unit)
    learning = preprocessing_cost(schema, target.budget, options.learning_share)
    column_costs(schema, unit.for_rows(learning))
    return target, learning


# Limits of memory and threads, from public quantities before anything is read.
#
# The number of private rows must not steer what is measured. So a fixed part of the memory is set
# aside for rows: the plan uses the number of rows that fit there, and a table that has more is
# refused before any budget is spent.


@dataclass(frozen=True)
class Limits:
    """Public limits that keep a run inside its memory.

    Attributes:
        most_rows: Maximum number of rows of the private table and of a synthetic one.
        countable_rows: Maximum number of rows for any memory.
        measured_cells: Maximum number of cells of all measured cliques of the loop together.
        watched_cells: Maximum number of cells of the marginals watched while a table is refined.
        kept_cells: Maximum number of cells of counted marginals that are kept.
    """

    max_memory_bytes: int
    workers: int
    most_rows: int
    countable_rows: int = MAX_ROWS
    measured_cells: int = 0
    watched_cells: int = 0
    kept_cells: int = 0
    scoring_workers: int = 1

    @classmethod
    def of(
        cls,
        domain: Domain,
        max_memory: int | str | None,
        workers: int,
        value_bytes: int,
        countable_rows: int = MAX_ROWS,
    ) -> Self:
        """Divide the memory between rows, of ``value_bytes`` for each attribute, and the rest.

        InputError is raised if the memory is not positive.
        """
        ceiling = memory_bytes(max_memory)
        fitting = int(ROWS_SHARE * ceiling) // (len(domain) * value_bytes)
        return cls(ceiling, workers, min(max(fitting, 1), countable_rows), countable_rows)

    @property
    def rows_bytes(self) -> int:
        """Memory for rows."""
        return int(ROWS_SHARE * self.max_memory_bytes)

    @property
    def solver_bytes(self) -> int:
        """Maximum memory of one problem while others are solved at the same time."""
        return max(0, self.max_memory_bytes - PROCESS_BYTES) // self.workers

    def check_countable(self, num_rows: int, what: str = "the table") -> None:
        """Raise ResourceExceeded, without their number, for more rows than any engine counts."""
        if num_rows > self.countable_rows:
            raise ResourceExceeded(
                f"{what} has more than {self.countable_rows:,} rows, the most that can be "
                "measured. Use a part of it."
            )

    def check_rows(self, num_rows: int, what: str = "the table") -> None:
        """Raise ResourceExceeded for more rows than any engine counts, or than fit the memory."""
        self.check_countable(num_rows, what)
        if num_rows > self.most_rows:
            raise ResourceExceeded(
                f"{what} has more rows than the {self.most_rows:,} that fit a quarter of "
                f"{self.max_memory_bytes / 2**20:,.0f} MB: raise --max-memory, or use --engine auto"
            )


class Work(Protocol):
    """What a run measures of a table, planned for the largest possible number of codes."""

    @property
    def limits(self) -> Limits:
        """Limits of memory and threads."""

    def list_warnings(self, target: PrivacyTarget, rows: int | None) -> tuple[BudgetWarning, ...]:
        """Return warnings about the budget, given the public row count if there is one."""

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return warnings about the accuracy for a table of about ``rows`` rows."""

    def request_fields(self) -> dict[str, str]:
        """Return what is measured and how, by which a ledger recognises the run."""


W = TypeVar("W", bound=Work)


@dataclass(frozen=True)
class Member(Generic[W]):
    """A table of a run; one table is a set with one member.

    Attributes:
        schema: The public description of the columns, with those of the ancestors.
        target: The budget of the run, for the rows that a unit has in this table.
        learning: The part of it for the bins and values that the schema leaves open.
    """

    schema: Schema
    target: PrivacyTarget
    learning: Cost
    work: W

    @classmethod
    def planned(
        cls,
        schema: Schema,
        options: RunOptions,
        budget: Callable[[Fraction | None], PrivacyTarget],
        plan: Callable[[Domain, PrivacyTarget], W],
        unit: Unit | None = None,
    ) -> Self:
        """Return a table with a plan, made with the budget that learning leaves.

        Other arguments are as for :func:`resolve_budget`.
        """
        check_reviewed(schema, options.unreviewed_schema)
        if options.scheduler is not None and options.engine not in SCHEDULED:
            raise InputError(
                f"--scheduler needs --engine dask; the engine is {options.engine}. Change the "
                "engine or remove --scheduler."
            )
        target, learning = resolve_budget(schema, options, budget, unit)
        left = target.within(target.budget - learning)
        return cls(schema, target, learning, plan(schema.widest_domain(), left))

    def list_warnings(self, options: RunOptions, rows: int | None) -> tuple[str, ...]:
        """Return warnings about the budget and the accuracy, given the public row count.

        InputError is raised if the budget is beyond a limit without the owner's consent.
        """
        found = self.work.list_warnings(self.target, rows)
        texts = check_budget_warnings(found, options.beyond_limits or options.resume)
        accuracy = rows is not None and not options.resume
        return texts + self.work.warnings(rows or 0) if accuracy else texts

    def engine_options(self, options: RunOptions) -> EngineOptions:
        """Return the limits of the engine that counts the table."""
        limits = self.work.limits
        return EngineOptions(
            workers=limits.workers, rows_bytes=limits.rows_bytes, check_rows=limits.check_countable,
            check_held=limits.check_rows, temp_folder=options.temp_folder,
            scheduler=options.scheduler,
        )  # fmt: skip
