"""What `evaluate` is given: checked before anything is compared."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os.path import exists  # Path.exists raises where a name is too long
from pathlib import Path
from typing import TYPE_CHECKING

from adaptive_qs.cli.artefacts import beside, check_distinct, check_file
from adaptive_qs.cli.standard_input import check_read_once, readable
from adaptive_qs.errors import InputError

if TYPE_CHECKING:
    from adaptive_qs.clock import PhaseClock
    from adaptive_qs.data.schema import Schema
    from adaptive_qs.data.table import CodedTable
    from adaptive_qs.evaluation.pair import TablePair
    from adaptive_qs.evaluation.promised import Promised
    from adaptive_qs.evaluation.rules import Rule
    from adaptive_qs.evaluation.utility.settings import UtilitySettings
    from adaptive_qs.workload.query_workload import QueryWorkload
    from adaptive_qs.workload.workload import Workload


@dataclass(frozen=True)
class Files:
    """The files that were named; None for those that were not.

    Attributes:
        true: the private table.
        synthetic: the table that stands for it.
        schema: of both.
        workload: what matters.
        control: rows that were held out.
        release: behind the synthetic table.
        report: to be written.
    """

    true: Path
    synthetic: Path
    schema: Path
    workload: Path | None
    control: Path | None
    release: Path | None
    report: Path | None

    def check(self, force: bool) -> None:
        """Refuse files that are in each other's way, before anything is read.

        Args:
            force: whether a report that exists is replaced.

        Raises:
            InputError: the control table is one of the others, or two tables are to come from
                standard input; the report is an input, exists
                already or cannot be written.
        """
        check_read_once([self.true, self.synthetic, self.control])
        if self.report is not None:
            inputs = [self.true, *beside(self.synthetic), self.schema]
            check_distinct([self.report], [*inputs, self.workload, self.control, self.release])
            check_file(self.report, force)
        for name, other in (("TRUE", self.true), ("SYNTHETIC", self.synthetic)):
            with suppress(OSError):  # a file that is missing is named where it is read
                if self.control is not None and self.control.samefile(other):
                    raise InputError(
                        f"{self.control}: is also {name}: give rows that were held out as --control"
                    )


@dataclass(frozen=True, eq=False)
class Question:
    """What is to be compared.

    Attributes:
        schema: of all tables.
        workload: the marginals that matter.
        queries: that matter, where they are others than the cells of these.
        rules: to check.
        promised: of the release behind the synthetic table.
        released: that the true table looks like a released one; None where it does not.
    """

    schema: Schema
    workload: Workload
    queries: QueryWorkload | None
    rules: list[Rule]
    promised: Promised
    released: str | None


def read_question(
    files: Files,
    spec: Path | Sequence[int] | None,
    rules: Sequence[str] | None,
    max_memory: str | None = None,
) -> Question:
    """Read all files but the tables.

    Args:
        files: that were named.
        spec: a workload file, or the numbers of attributes of the marginals that matter;
            None for the default.
        rules: as they were written.
        max_memory: ceiling of the process's memory while a release is read.

    Raises:
        InputError: a file or a rule cannot be read, or does not fit the schema; the tables are
            swapped.
    """
    from adaptive_qs.data.schema import Schema
    from adaptive_qs.evaluation.promised import find_promise
    from adaptive_qs.evaluation.query_error import resolve_compared
    from adaptive_qs.evaluation.rules import parse_rule

    released = _released(files)
    schema = Schema.load(files.schema, max_memory)
    workload, queries = resolve_compared(spec, schema.domain())
    return Question(
        schema,
        workload,
        queries,
        [parse_rule(text, schema) for text in rules or ()],
        find_promise(files.release, files.synthetic, schema, max_memory),
        released,
    )


def _released(files: Files) -> str | None:
    """That a privacy statement lies beside the true table, which is for released ones.

    Raises:
        InputError: and none is known of the synthetic one, so that they seem to be swapped.
    """
    from adaptive_qs.release.beside import manifest_path

    statement = manifest_path(files.true)
    if not exists(statement):
        return None
    if files.release is None and not exists(manifest_path(files.synthetic)):
        raise InputError(
            f"{files.true}: is a released table, {statement.name} lies beside it, and nothing says "
            f"so of {files.synthetic}: swap them, the private table comes first"
        )
    return (
        f"the table that was given as the true one is a released one: {statement.name} lies beside "
        "it, so that errors are those between two releases"
    )


def read_tables(
    files: Files, schema: Schema, clock: PhaseClock
) -> tuple[TablePair, CodedTable | None]:
    """The two tables, and the control table if there is one.

    Raises:
        DataError: one cannot be read, has no rows, or does not fit the schema.
    """
    from adaptive_qs.evaluation.pair import TablePair, read_compared

    clock.start("read")
    with readable(files.true) as true, readable(files.synthetic) as synthetic:
        pair = TablePair.of(true, synthetic, schema, clock)
    if files.control is None:
        return pair, None
    with readable(files.control) as control:
        return pair, read_compared(control, schema, "control", clock)


def model_settings(
    target: str | None, no_models: bool, repeats: int, seed: int, report: Path | None
) -> UtilitySettings | None:
    """What was asked of the models; None for no models.

    Raises:
        InputError: the options contradict each other, or a number is out of its range.
    """
    from adaptive_qs.evaluation.utility.settings import UtilitySettings

    settings = UtilitySettings(target=target, seed=seed, repeats=repeats)
    if no_models and target is not None:
        raise InputError("both --no-models and --target were given: give one of them")
    return None if no_models or (target is None and report is None) else settings
