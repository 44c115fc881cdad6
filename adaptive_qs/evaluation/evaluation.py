"""Comparing a synthetic table with the true one: everything that is known, in one value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.finding import found_rules
from adaptive_qs.evaluation.groups import GroupErrors, check_by, group_errors
from adaptive_qs.evaluation.marginals import (
    Association,
    Matrix,
    OrderedError,
    PairCounts,
    TotalVariation,
    UnseenPairs,
    WorkloadDistance,
    association_of,
    count_pairs,
    drawn_sets,
    marginal_distances,
    mean_and_largest,
    ordered_errors,
    total_variation,
    unseen_pairs,
    workload_distance,
)
from adaptive_qs.evaluation.queries import (
    ComparedSource,
    QueryError,
    check_queries,
    query_error,
    resolve_compared,
)
from adaptive_qs.evaluation.results import Membership, Promise, Utility, UtilitySettings
from adaptive_qs.evaluation.rules import (
    ImpossibleRows,
    RowChecks,
    Rule,
    RuleCheck,
    check_rules,
    declared_rules,
    impossible_rows,
    parse_rule,
    row_checks,
)
from adaptive_qs.evaluation.tables import (
    OWNER_ONLY,
    JointCodes,
    TablePair,
    check_control,
    read_compared,
)
from adaptive_qs.evaluation.values import ColumnValues, GroupMeans, column_values, group_means
from adaptive_qs.machine import (
    ROWS_SHARE,
    PhaseProgress,
    StepProgress,
    memory_bytes,
    plan_workers,
)
from adaptive_qs.privacy.unit import DEFAULT_WEIGH, check_weigh
from adaptive_qs.release.bundle import Bundle, manifest_path, read_sidecar
from adaptive_qs.release.statement import Manifest, Statement
from adaptive_qs.table.encode import resolve_schema
from adaptive_qs.table.schema import Schema

# What the release of a synthetic table promised, where that can be found.


@dataclass(frozen=True, eq=False)
class Promised:
    """What is known of the release behind a table.

    Attributes:
        release: the bundle, or the statement that lay beside the table; None where there is none.
        promise: that it makes; None where it is not known, or nothing is promised.
        limitation: why there is no promise, for the reader.
    """

    release: Bundle | Statement | None = None
    promise: Promise | None = None
    limitation: str | None = None

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
    known: Bundle | Statement
    if release is not None:
        given = isinstance(release, Bundle)
        known = release if isinstance(release, Bundle) else Bundle.load(release, max_memory)
        source = "the release" if given else Path(str(release)).name
        statement: Statement = known.manifest
        if statement.schema_fingerprint != schema.fingerprint:
            raise InputError(
                f"{source if given else release}: was made with another schema: name the release "
                "that the synthetic table comes from, and give it as --schema, too"
            )
    else:
        beside = None if synthetic is None else manifest_path(synthetic)
        if beside is None or not exists(beside):
            reason = "no --release was given, and no statement lies beside the synthetic table"
            return _unknown(reason)
        source = beside.name
        try:
            content = read_sidecar(beside, max_memory)
            fields = {key: value for key, value in content.items() if key in Manifest.model_fields}
            known = statement = Manifest.model_validate(fields)
        except (InputError, AttributeError, ValidationError):
            return _unknown(f"{source} is damaged, or of another version")
        if statement.schema_fingerprint != schema.fingerprint:
            return _unknown(
                f"{source} is of a release with another schema, such as one in which values were "
                "learnt: name the release bundle as the schema"
            )
    if statement.insecure:
        said = f"nothing is promised: {source} says NOT PRIVATE, its noise can be predicted"
        return Promised(known, None, said)
    if statement.drafted:
        said = f"no bound: {source} says that the schema was taken from the data, and the privacy "
        return Promised(known, None, f"{said}promise does not cover what it reveals")
    rho = None if statement.delta_spent else statement.rho_spent
    return Promised(known, Promise(rho, statement.epsilon, statement.delta, source), None)


def _unknown(reason: str) -> Promised:
    return Promised(limitation=f"the privacy promise is not known: {reason}")


# Comparing the tables.

FEW_ROWS = 1_000
"""Tables of fewer rows differ much by chance."""
CROWDED = 0.2
"""Occupied cells, as a part of the rows, from which the correction of mutual information for bias
falls short: independent columns then show one."""
UNEQUAL = 2.0
"""Ratio of the numbers of rows from which differences of association are hard to compare."""
MOST_WAYS = 3
"""Total variation is computed of all marginals of 1 to so many attributes."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A synthetic table against the truth; owner only.

    Attributes:
        pair: the tables.
        workload: errors of the workload's marginals.
        total_variation: of all 1-, 2- and 3-way marginals.
        association: between attributes.
        ordered: errors of prefixes and ranges, one entry for each ordered attribute.
        rows: checks of whole rows.
        rules: between columns.
        utility: of models; None where it was not asked for or is impossible.
        membership: attacks; None without a control table.
        limitations: what was left out or could not be computed, and why.
        unseen: pairs of values that the true table never shows.
        queries: error of the workload's queries; None where they are the cells of its marginals,
            whose error the workload has.
        promised: what is known of the release behind the synthetic table.
        values: means and quantiles of the columns whose values are known, in their units.
        group_means: means of such columns by the groups of others, where these matter most.
        impossible: rows that break a rule which true rows keep; None where no rule was.
        by: errors within the groups of a column; None where they were not asked for.
    """

    pair: TablePair
    workload: WorkloadDistance
    total_variation: tuple[TotalVariation, ...]
    association: Association
    ordered: tuple[OrderedError, ...]
    rows: RowChecks
    rules: tuple[RuleCheck, ...]
    utility: Utility | None
    membership: Membership | None
    limitations: tuple[str, ...]
    unseen: UnseenPairs | None = None
    queries: QueryError | None = None
    promised: Promised = Promised()
    values: tuple[ColumnValues, ...] = ()
    group_means: tuple[GroupMeans, ...] = ()
    impossible: ImpossibleRows | None = None
    by: GroupErrors | None = None

    def __repr__(self) -> str:
        return (
            f"<Evaluation, owner only: mean L1 error {self.workload.mean_l1:.4g} and largest "
            f"{self.workload.max_l1:.4g} over {len(self.workload.per_clique):,} marginals>"
        )


def evaluate(
    true: Any,
    synthetic: Any,
    schema: Any = None,
    workload: ComparedSource = None,
    *,
    rules: str | Rule | Iterable[str | Rule] = (),
    by: str | None = None,
    weigh: str | None = None,
    target: str | None = None,
    models: bool = False,
    repeats: int = 5,
    control: Any = None,
    release: str | Path | Bundle | None = None,
    seed: int = 0,
    workers: int | None = None,
    max_memory: int | str | None = None,
    progress: PhaseProgress | None = None,
) -> Evaluation:
    """Compare a synthetic table with the true one; the result is for the owner only.

    It is computed from private rows without noise: it spends no budget because it is not to be
    published.

    Args:
        true: the private table: a pandas, polars or pyarrow table, the path of a CSV or Parquet
            file, or a :class:`CodedTable`.
        synthetic: the table that stands for it, likewise.
        schema: of both: a :class:`Schema`, the path of a schema file or release bundle, or parsed
            JSON; by default that of ``release``. Coded tables need none.
        workload: what matters: a number of ways, several numbers, a workload file or its parsed
            content, a :class:`Workload` or a :class:`QueryWorkload`; by default all 2-way
            marginals.
        rules: that the owner knows to hold, such as "start <= end".
        by: a column within whose groups errors are given, each beside its chance level.
        weigh: what counts alike, a name of ``adaptive_qs.privacy.unit.WEIGH``; by default what did
            in the release behind the table, where its statement is known, and rows otherwise. With
            "persons" the true table is that of persons: one row of each, drawn from theirs.
        target: the column that models learn to predict.
        models: train models although there is no ``target``: the program proposes one.
        repeats: splits that models are trained and tested on.
        control: rows of the same population that the synthetic table was not made from, for the
            membership attack, given as the tables are; models are tested on them.
        release: the release behind the synthetic table, or its path, for the bound beside the
            attack; by default the statement beside the file of a synthetic table.
        seed: of splits, models and attacks; it protects nothing.
        workers: threads, by default one for every core; results do not depend on it.
        max_memory: ceiling of the process's memory while a release is read.
        progress: called with a phase ("read", "evaluate", "queries", "pairs", "groups",
            "models", "attack"), steps done and steps in all.

    Raises:
        InputError: a parameter, the schema, the workload, a rule, a table, the target or the
            column of the groups is wrong, or the release was made with another schema.
        DataError: the control rows were not held out, or are too few.
        ResourceExceeded: queries on a set of attributes take too much memory.
    """
    threads = plan_workers(workers)
    settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if not (release is None or isinstance(release, str | Path | Bundle)):
        raise InputError("release is no release: give a path, or release_ of a synthesizer")
    if schema is None:
        schema = release.schema if isinstance(release, Bundle) else release
    described = resolve_schema(schema, true, max_memory)
    marginals, queries = resolve_compared(workload, described.domain())
    if queries is not None:
        check_queries(queries)
    several = [rules] if isinstance(rules, str) or not isinstance(rules, Iterable) else rules
    declared = declared_rules(described)
    declared += [parse_rule(rule, described) if isinstance(rule, str) else rule for rule in several]
    if by is not None:
        check_by(by, described)
    file = synthetic if isinstance(synthetic, str | Path) else None
    promised = find_promise(release, file, described, max_memory)
    if weigh is None:
        weigh = DEFAULT_WEIGH if promised.statement is None else promised.statement.protects.weigh
    check_weigh(weigh, described.person)
    if weigh != DEFAULT_WEIGH:
        true, control = (
            None if table is None else _of_persons(table, described, max_memory)
            for table in (true, control)
        )

    def steps(phase: str) -> StepProgress | None:
        return None if progress is None else partial(progress, phase)

    pair = TablePair.of(true, synthetic, described, progress)
    overlap = None
    if control is not None:
        control = read_compared(control, described, "control", progress)
        overlap = check_control(pair.true, control, settings.seed)
    joint = JointCodes(pair)
    number = len(pair.domain)
    sets = {ways: drawn_sets(number, ways) for ways in range(1, min(MOST_WAYS, number) + 1)}
    wanted = [*marginals.cliques, *(clique for drawn in sets.values() for clique in drawn)]
    found = marginal_distances(joint, wanted, threads, steps("evaluate"))
    asked = None if queries is None else query_error(joint, queries, threads, steps("queries"))
    counts = count_pairs(joint, threads, steps("pairs"))
    checked = list(zip(declared, check_rules(joint, declared, "declared")))
    checked += found_rules(counts, described, [rule.text for rule in declared])
    association = association_of(counts)
    variation = tuple(total_variation(pair.domain, cliques, found) for cliques in sets.values())
    rows = row_checks(joint)
    said = list(limitations_of(counts, variation, rows))
    if weigh != DEFAULT_WEIGH:
        said.append(OF_PERSONS)
    utility = membership = None
    if models or target is not None:
        from adaptive_qs.evaluation.models import measure_utility  # slow to import

        try:
            utility = measure_utility(
                pair.true, pair.synthetic, settings, threads, steps("models"), control, overlap
            )
        except InputError as error:
            if target is not None:
                raise
            said.append(f"no models: {error}")
    if overlap is not None:
        from adaptive_qs.evaluation.attack import measure_membership  # slow to import

        game = (control, promised.promise, settings.seed, threads, steps("attack"))
        membership = measure_membership(pair.true, pair.synthetic, *game, overlap=overlap)
        said += [promised.limitation] if promised.limitation else []
    return Evaluation(
        pair,
        workload_distance(marginals, found),
        variation,
        association,
        ordered_errors(pair, {column.name: column.num_values for column in described.columns}),
        rows,
        tuple(check for _, check in checked),
        utility,
        membership,
        tuple(said),
        unseen_pairs(counts),
        asked,
        promised,
        column_values(pair, described),
        group_means(pair, described, association),
        impossible_rows(joint, checked),
        None
        if by is None
        else group_errors(pair, described, by, marginals, threads, steps("groups")),
    )


OF_PERSONS = (
    "persons weigh alike: of each person one true row was compared, drawn from theirs; the others "
    "were not looked at"
)


def _of_persons(table: Any, schema: Schema, max_memory: int | str | None) -> Any:
    """One row of each person: a sample of rows that weigh 1/k each, as large as a table of persons.

    Raises:
        InputError: the table lacks the person column.
        ResourceExceeded: there are more persons than fit the memory.
    """
    from adaptive_qs.table.persons import ContributionBound  # few tables are of persons

    return ContributionBound.from_source(
        table, schema, 1, int(memory_bytes(max_memory) * ROWS_SHARE)
    )


# What was left out of the measures, and what makes them uncertain.


def limitations_of(
    counts: PairCounts, variation: Iterable[TotalVariation], checks: RowChecks
) -> Iterator[str]:
    """What was left out of the measures, and what makes them uncertain, in public words."""
    pair, names = counts.joint.pair, counts.joint.pair.domain.names
    rows = (pair.true.num_rows, pair.synthetic.num_rows)
    if checks.same:
        yield (
            "the synthetic rows are the true rows, each as often: the true table was compared with "
            "itself, or with a copy"
        )
    for part in variation:
        if part.compared < part.marginals:
            yield (
                f"total variation of {part.ways}-way marginals: {part.compared:,} of "
                f"{part.marginals:,} compared, drawn at random; the worst one may be another"
            )
    for table, margins in zip(("true", "synthetic"), counts.margins):
        constant = [n for n, margin in zip(names, margins) if np.count_nonzero(margin) == 1]
        if constant:
            yield (
                f"one value only in the {table} table, so associated with nothing: "
                + ", ".join(constant)
            )
    shares = {
        pair: max(sums[pair].occupied / number for sums, number in zip(counts.sums, rows))
        for pair in counts.sums[0]
    }
    if crowded := sum(share > CROWDED for share in shares.values()):
        i, j = max(shares, key=lambda pair: shares[pair])
        yield (
            f"mutual information may be too large for {crowded:,} of {len(shares):,} pairs, "
            f"{names[i]} x {names[j]} most: a table has fewer than {1 / CROWDED:g} rows for "
            "each occupied cell, so that even independent columns show some; look at Cramér's V"
        )
    if min(rows) < FEW_ROWS:
        yield f"a table has fewer than {FEW_ROWS:,} rows: much of every difference is chance"
    if max(rows) > UNEQUAL * min(rows):
        yield (
            "one table has more than twice the rows of the other: compare associations, repeated "
            "rows and maxima with care"
        )


# An evaluation as plain JSON values, under fixed names.


def evaluation_json(evaluation: Evaluation, verdict: Sequence[str]) -> dict[str, Any]:
    """Everything but the rows, and the verdict in a few sentences; numbers that are not finite are
    null."""
    distance, asked = evaluation.workload, evaluation.queries
    measured = distance if asked is None else asked
    cells = sum(clique.cells for clique in distance.per_clique)
    names, pair = evaluation.association.names, evaluation.pair
    content = {
        "notice": OWNER_ONLY,
        "verdict": verdict,
        "rows_compared": {"true": pair.true.num_rows, "synthetic": pair.synthetic.num_rows},
        "workload_error": {
            "mean_l1": distance.mean_l1,
            "max_l1": distance.max_l1,
            "rmse": measured.rmse,
            "rmse_of": "cells" if asked is None else "queries",
            "queries": cells if asked is None else asked.queries,
        },
        "query_parts": [] if asked is None else asked.parts,
        "per_clique": distance.per_clique,
        "total_variation": evaluation.total_variation,
        "association": {
            "names": names,
            "cramers_v": _matrices(evaluation.association.cramers_v),
            "mutual_information": _matrices(evaluation.association.mutual_information),
        },
        **{
            name: getattr(evaluation, name)
            for name in ("ordered", "rows", "rules", "unseen", "utility", "membership")
        },
        "values": [column.as_json() for column in evaluation.values],
        "group_means": [means.as_json() for means in evaluation.group_means],
        "impossible": evaluation.impossible,
        "by": None if evaluation.by is None else evaluation.by.as_json(),
        "limitations": evaluation.limitations,
    }
    plain: dict[str, Any] = _plain(content)
    return plain


def _matrices(matrices: tuple[Matrix, Matrix]) -> dict[str, Any]:
    true, synthetic = matrices
    mean, largest = mean_and_largest(synthetic - true)
    differences = {"mean_difference": mean, "max_difference": largest}
    return {**differences, "true": true.tolist(), "synthetic": synthetic.tolist()}


def _plain(value: Any) -> Any:
    """Values as JSON has them: NaN and infinities, which it has no numbers for, are None."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
