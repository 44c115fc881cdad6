"""Synthetic tables as the work of a run: what the adaptive loop measures."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Self

from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.loop import LEVELS
from adaptive_qs.loop.budget import LoopSettings
from adaptive_qs.loop.estimates import CELLS_ALONE, Strategies
from adaptive_qs.loop.forecast import LoopForecast, total_std
from adaptive_qs.loop.loop import Round, run_loop
from adaptive_qs.machine import Fault, PhaseClock, memory_bytes, plan_workers, reach
from adaptive_qs.privacy.budget import BudgetWarning, Part, list_budget_warnings
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.unit import SetMember, Unit
from adaptive_qs.release.release import Release
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.run.budget import MIN_COST, Limits, Member, PrivacyTarget
from adaptive_qs.run.memory import keep_what_fits, plan_memory, rule_bytes, scored_bytes
from adaptive_qs.run.options import SelectionOptions, SynthesizeOptions
from adaptive_qs.run.states import CheckedRun, ReadRun, SpendingRun
from adaptive_qs.strategy.integer import column_strategies
from adaptive_qs.table.coded import CODE_BYTES, MarginalCounter
from adaptive_qs.table.schema import Schema
from adaptive_qs.table.tables import TableSet
from adaptive_qs.workload import file as workload_file
from adaptive_qs.workload.file import WorkloadSpec, other_queries, resolve_workload, workload_digest
from adaptive_qs.workload.limit import DroppedMarginals
from adaptive_qs.workload.workload import MOST_LISTED, QueryWorkload, Workload

LOOP_STEPS = 1_000
"""Steps in which the loop reports its progress: thousandths of the budget."""


@dataclass(frozen=True)
class QueryStrategies:
    """Queries over a domain other than the cells of marginals that a table is to serve.

    ``make`` makes them over another domain. ``strategies`` is how single columns are measured for
    them.
    """

    make: Callable[[Domain], QueryWorkload]
    queries: QueryWorkload
    strategies: Strategies

    @classmethod
    def of(cls, spec: Any, domain: Domain) -> Self | None:
        """Return the queries of a workload; None if it requests cells alone.

        WorkloadError is raised if they do not fit the domain, ResourceExceeded if they are too
        large.
        """
        make = other_queries(spec)
        return None if make is None else cls._made(make, domain)

    @classmethod
    def _made(cls, make: Callable[[Domain], QueryWorkload], domain: Domain) -> Self:
        queries = make(domain)
        return cls(make, queries, column_strategies(queries))

    def over(self, domain: Domain) -> Self:
        """Return the same over as many codes as were learnt."""
        return self._made(self.make, domain)


@dataclass(frozen=True)
class Tables:
    """The loop on a domain; see :class:`~adaptive_qs.run.states.Work`.

    Attributes:
        rho: what learning leaves of the budget, for one row of what is published.
        levels: one of :data:`~adaptive_qs.loop.LEVELS`.
        left_out: Requested marginals that cannot be measured.
        served: Requested queries other than cells of marginals; None if there are none.
        schema: of the columns.
    """

    workload: Workload
    limits: Limits
    rho: float
    levels: str = LEVELS[0]
    left_out: DroppedMarginals | None = None
    served: QueryStrategies | None = None
    schema: Schema | None = None

    @property
    def loop(self) -> LoopSettings:
        """How the loop spends it."""
        return LoopSettings(measured_cells=self.limits.measured_cells, levels=self.levels)

    @property
    def settings(self) -> dict[str, Any]:
        """How the budget is spent and rows are made, for the statement."""
        target, left_out = self.workload.target, self.left_out
        names = self.workload.domain.clique_names(tuple(sorted(self.strategies)))
        return {
            **asdict(self.loop),
            **({} if target is None else {"target": target}),
            **({} if left_out is None else {"left_out": str(left_out)}),
            **({"measured_by_queries": list(names)} if names else {}),
        }

    @property
    def strategies(self) -> Strategies:
        """How single columns are measured, where not by their cells."""
        return CELLS_ALONE if self.served is None else self.served.strategies

    def over(self, domain: Domain) -> Self:
        """Return the same for as many codes as were learnt."""
        if domain == self.workload.domain:
            return self
        served = None if self.served is None else self.served.over(domain)
        return replace(self, workload=replace(self.workload, domain=domain), served=served)

    @cached_property
    def forecast(self) -> LoopForecast:
        """Which columns the loop will likely leave unconnected."""
        return LoopForecast(self.workload, self.rho, self.loop, self.schema)

    def list_warnings(self, target: PrivacyTarget, rows: int | None) -> tuple[BudgetWarning, ...]:
        """Return warnings about the budget; the loop has the part that learning leaves."""
        std = total_std(self.workload, self.rho, rows or 0)
        counted = "the number of rows"
        return list_budget_warnings(target.epsilon, target.delta, std, rows, counted, target.unit)

    def warnings(self, rows: int) -> tuple[str, ...]:
        """Return columns that will likely stay unconnected in a table of ``rows`` rows."""
        return self.forecast.warnings(rows)

    def request_fields(self) -> dict[str, str]:
        """Return what is measured and how."""
        limits = self.limits
        return {
            "command": "synthesize",
            "workload": workload_digest(self.workload),
            **({} if self.served is None else {"queries": workload_digest(self.served.queries)}),
            "levels": self.levels,
            "target": self.workload.target or "none",
            "memory ceiling": f"{limits.measured_cells} measured cells, {limits.watched_cells} "
            "watched",
        }


def check_tables(schema: TableSet, options: SynthesizeOptions) -> CheckedRun[Tables]:
    """Return a run that makes synthetic tables, after all checks that need no rows.

    Each marginal of the workload is measured in every table that has all of its columns, of which
    one is its own and the others are its own or of its ancestors. The root has the public rows.

    Raises:
        InputError: If a parameter or the workload is invalid, a schema is unreviewed, or the budget
            is beyond a limit.
        ResourceExceeded: If the plan exceeds the memory.
        LedgerError: If the ledger cannot be used.
        BudgetExceeded: If the ledger does not have the budget.
    """
    if schema.is_set:
        members = _plan_members(schema, options)
    else:
        members = {schema.root: _plan_member(schema.tables[schema.root], options)}
    checked = CheckedRun.of(schema, options, members)
    return replace(checked, warnings=(*checked.warnings, *list_dropped(checked)))


def _plan_members(schema: TableSet, options: SynthesizeOptions) -> dict[str, Member[Tables]]:
    """Plan what is measured of the tables of a set."""
    if options.rows_per_person is not None:
        raise InputError(
            'rows-per-person is for one table, and the keys of a set have "most". Remove it.'
        )
    if options.target is not None:
        raise InputError("target is for one table, and this is a set of tables. Remove it.")
    tables = schema.measured()
    workloads = workload_file.split_workload(
        options.workload,
        {table.name: table.schema.widest_domain() for table in tables},
        {table.name: table.given for table in tables},
    )
    # All tables keep their rows at the same time, each a quarter of what it is planned for, and the
    # loop, which needs the rest, runs for one after the other.
    memory = memory_bytes(options.max_memory) * 4 // (len(schema.tables) + 3)
    members = {}
    for table in tables:
        related = SetMember(schema.names, table.name, schema.joins)
        unit = Unit.of(None, None, options.neighbours)
        unit = replace(unit, related=related, rows=table.rows_per_unit)
        given = replace(options, max_memory=memory, workload=workloads[table.name])
        member = _plan_member(table.schema, given, unit, float(table.share))
        left = float(table.share) * float(unit.for_rows(member.target.budget).rho)
        if left < MIN_COST / 2:
            raise InputError(
                f"The budget leaves rho {left:.3g} for a row of {table.name}, which is only noise. "
                "Raise the budget, or use fewer tables."
            )
        members[table.name] = member
    return members


def _plan_member(
    schema: Schema, options: SynthesizeOptions, unit: Unit | None = None, share: float = 1.0
) -> Member[Tables]:
    """Plan what is measured of a table; each of a set has a unit and a share of the budget."""
    private = len(schema.open_columns)
    learning = options.learning_share if private else 0.0
    budget = partial(
        PrivacyTarget.of, options.epsilon, options.delta, options.rho,
        column_share=learning / max(private, 1), learning_share=learning,
    )  # fmt: skip

    def plan(domain: Domain, left: PrivacyTarget) -> Tables:
        ruled = rule_bytes(schema)
        marginals, left_out = select_candidates(options.workload, domain, options, ruled)
        limits = tables_limits(domain, marginals, options.max_memory, options.workers, ruled)
        served = QueryStrategies.of(options.workload, domain)
        if served is not None and schema.private_columns:
            from adaptive_qs.learn.schema import check_learnable

            check_learnable(served.queries, schema)
        return Tables(marginals, limits, share * left.rho, options.levels, left_out, served, schema)

    return Member.planned(schema, options, budget, plan, unit)


def list_dropped(run: CheckedRun[Tables]) -> tuple[str, ...]:
    """Return which of the requested marginals cannot be measured, for each table."""
    found = ((name, member.work.left_out) for name, member in run.members.items())
    label = "{}: {}" if run.schema.is_set else "{1}"
    return tuple(label.format(name, left) for name, left in found if left is not None)


def select_candidates(
    workload: WorkloadSpec, domain: Domain, options: SelectionOptions, ruled: int = 0
) -> tuple[Workload, DroppedMarginals | None]:
    """Return the marginals that a run can measure, and what it leaves out.

    Sizes, weights and options decide, by the rule of :mod:`adaptive_qs.workload.limit`. InputError
    is raised if the workload does not fit the domain or cannot serve the target, ResourceExceeded
    if it lists too many marginals one by one. ``ruled`` is what :func:`rule_bytes` returns.
    """
    requested = resolve_workload(workload, domain, MOST_LISTED)
    if options.target is not None:
        requested = requested.serving(options.target)
    limits = Limits.of(domain, options.max_memory, plan_workers(options.workers), CODE_BYTES)
    most = options.max_candidates, options.max_cells
    return keep_what_fits(requested, limits.most_rows, limits.max_memory_bytes - ruled, *most)


def forecast_scoring(workload: Workload, options: SelectionOptions) -> tuple[int, int, int]:
    """Return the candidates, their cells, and the memory, which may be more than there is."""
    try:
        limits = tables_limits(workload.domain, workload, options.max_memory, options.workers)
    except ResourceExceeded:
        return scored_bytes(workload)
    return scored_bytes(workload, limits.kept_cells)


def tables_limits(
    domain: Domain,
    workload: Workload,
    max_memory: int | str | None,
    workers: int | None,
    ruled: int = 0,
) -> Limits:
    """Return the limits of a run of the loop, by default with a thread for every core.

    ResourceExceeded is raised if the workload does not fit. ``ruled`` is what :func:`rule_bytes`
    returns.
    """
    threads = plan_workers(workers)
    limits = Limits.of(domain, max_memory, threads, CODE_BYTES)
    plan = plan_memory(workload, limits.most_rows, limits.max_memory_bytes, ruled)
    return replace(
        limits, measured_cells=plan.measured_cells, watched_cells=plan.watched_cells,
        kept_cells=plan.kept_cells, scoring_workers=min(threads, plan.scoring_threads),
    )  # fmt: skip


def synthesize(read: ReadRun[Tables], clock: PhaseClock) -> tuple[SpendingRun[Tables], ReleaseSet]:
    """Spend the budget; return the run, to be finished after delivery, and its release.

    Raise ResourceExceeded if a table has more rows than can be counted, and as
    :meth:`ReadRun.begin`.
    """
    schema, releases, left = read.checked.schema, dict[str, Release](), Fraction(1)
    with read, read.begin() as run:
        run.learn(clock)
        whole = run.mechanisms.ledger
        for described, (name, table) in zip(schema.measured(), run.tables.items()):
            limit = Cost(math.floor(whole.left.rho_units * described.share / left))
            left -= described.share
            part: AbstractContextManager[Any] = nullcontext()
            if schema.is_set:
                limit = limit if left else whole.left
                part = run.mechanisms.spending(Part(whole, limit, table.member.target.unit))
            work = table.member.work.over(table.schema.domain())
            with part:
                releases[name] = measure(
                    table.counter, table.schema, work.workload, table.member.target, work,
                    run.mechanisms, clock,
                )  # fmt: skip
        release = ReleaseSet.of_run(schema, releases)
        run.publish(release.digests())
    return run, release


def measure(
    counter: MarginalCounter,
    schema: Schema,
    workload: Workload,
    target: PrivacyTarget,
    work: Tables,
    mechanisms: Mechanisms,
    clock: PhaseClock,
) -> Release:
    """Run the loop; with learning, the only step that costs privacy.

    ``work`` is how to spend what the ledger of ``mechanisms`` has left of the target. The clock
    reports the phase "loop". ResourceExceeded is raised, before anything is spent, if the table has
    more rows than can be counted.
    """
    work.limits.check_countable(int(counter.count(())))
    clock.start("loop")

    def on_round(_: Round, part: float) -> None:
        clock("loop", round(part * LOOP_STEPS), LOOP_STEPS)

    counter.keep_up_to(work.limits.kept_cells)
    ledger, loop, threads = mechanisms.ledger, work.loop, work.limits.scoring_workers
    rho = target.within(ledger.left).rho
    result = run_loop(
        mechanisms.table(counter), workload, mechanisms, rho, loop, threads, on_round,
        work.strategies,
    )  # fmt: skip
    reach(Fault.MEASURED)
    return Release.of_run(
        result, schema, workload, mechanisms, work.settings, target.loss, work.limits.watched_cells,
        work.limits.countable_rows,
    )  # fmt: skip
