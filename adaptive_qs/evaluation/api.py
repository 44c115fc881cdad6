"""Comparing a synthetic table with the true one, for callers of Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaptive_qs.arguments import natural_number
from adaptive_qs.data.inputs import resolve_schema
from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.evaluation import Evaluation, compare
from adaptive_qs.evaluation.pair import TablePair, read_compared
from adaptive_qs.evaluation.promised import find_promise
from adaptive_qs.evaluation.query_error import ComparedSource, resolve_compared
from adaptive_qs.evaluation.rules import Rule, parse_rule
from adaptive_qs.evaluation.utility.settings import UtilitySettings
from adaptive_qs.machine import plan_workers
from adaptive_qs.progress import PhaseProgress
from adaptive_qs.release.bundle import Bundle


def evaluate(
    true: Any,
    synthetic: Any,
    schema: Any = None,
    workload: ComparedSource = None,
    *,
    rules: str | Rule | Iterable[str | Rule] = (),
    target: str | None = None,
    models: bool = False,
    repeats: int = 5,
    control: Any = None,
    release: str | Path | Bundle | None = None,
    seed: int = 0,
    workers: int | None = None,
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
        target: the column that models learn to predict.
        models: train models although there is no ``target``: the program proposes one.
        repeats: splits that models are trained and tested on.
        control: rows of the same population that the synthetic table was not made from, for the
            membership attack, given as the tables are.
        release: the release behind the synthetic table, or its path, for the bound beside the
            attack; by default the statement beside the file of a synthetic table.
        seed: of splits, models and attacks; it protects nothing.
        workers: threads, by default one for every core; results do not depend on it.
        progress: called with a phase, steps done and steps in all.

    Raises:
        InputError: a parameter, the schema, the workload, a rule or a table is wrong, or the
            release was made with another schema.
        ResourceExceeded: queries on a set of attributes take too much memory.
    """
    threads = plan_workers(workers)
    settings = None
    if models or target is not None:
        settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if not (release is None or isinstance(release, str | Path | Bundle)):
        raise InputError("release is no release: give a path, or release_ of a synthesizer")
    if schema is None:
        schema = release.schema if isinstance(release, Bundle) else release
    described = resolve_schema(schema, true)
    marginals, queries = resolve_compared(workload, described.domain())
    promised = find_promise(
        release, synthetic if isinstance(synthetic, str | Path) else None, described
    )
    checked = _rules(rules, described)
    pair = TablePair.of(true, synthetic, described, progress)
    result = compare(
        pair,
        described,
        marginals,
        checked,
        workers=threads,
        progress=progress,
        utility=settings,
        control=None if control is None else read_compared(control, described, "control", progress),
        promise=promised.promise,
        seed=natural_number("seed", seed),
        queries=queries,
    )
    if control is None or promised.limitation is None:
        return result
    return replace(result, limitations=(*result.limitations, promised.limitation))


def _rules(rules: str | Rule | Iterable[str | Rule], schema: Schema) -> list[Rule]:
    """The rules, checked before a table is read."""
    several = [rules] if isinstance(rules, str) or not isinstance(rules, Iterable) else rules
    return [parse_rule(rule, schema) if isinstance(rule, str) else rule for rule in several]
