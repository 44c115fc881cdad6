"""Options as a command line, one for each field of a dataclass, and the files that they name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, replace
from fnmatch import fnmatch
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin
from zipfile import is_zipfile

import typer

from adaptive_qs.cli import io
from adaptive_qs.errors import AdaptiveQsError, InputError
from adaptive_qs.run.options import OUTPUT, PANELS, Field, Option, checked, read_options
from adaptive_qs.table.files import check_new, claimed, inside, is_pattern
from adaptive_qs.workload import FAMILIES

if TYPE_CHECKING:
    from adaptive_qs.run.options import RunOptions
    from adaptive_qs.table.text import Formulas

TABLE_HELP = (
    "CSV, CSV.gz, Parquet, Excel, SQLite or DuckDB (FILE::NAME selects one of several tables in a "
    "file)."
)
PrivateTable = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA",
        help=f"Private table: {TABLE_HELP} A folder or a pattern such as 'data/*.csv' reads all "
        "matching files.",
    ),
]


# Options that several commands have and Python does not.


@dataclass(kw_only=True)
class SchemaOptions:
    """The schema of a table."""

    schema: Annotated[Path | None, Option(
        "Public schema, mbi domain file, or release.", "FILE")] = None  # fmt: skip


@dataclass(kw_only=True)
class WorkloadOptions:
    """Which marginals or queries matter."""

    workload: Annotated[Path | None, Option(
        "Workload file: the marginals or other queries that matter.", "FILE")] = None  # fmt: skip
    ways: Annotated[str | None, Option(
        "All sets of K columns, such as 2 or 1,2.", "K", default="2"
    )] = None  # fmt: skip


@dataclass(kw_only=True)
class FamilyOptions(WorkloadOptions):
    """Queries other than marginals."""

    queries: Annotated[str | None, Option(
        f"With --ways: {FAMILIES.listed(but='custom')}; custom ones need a --workload file.",
        "FAMILY", default="marginal")] = None  # fmt: skip


@dataclass(kw_only=True)
class ForceOptions:
    """Whether files are replaced."""

    force: Annotated[bool, Option(
        "Replace existing files.", "", OUTPUT)] = False  # fmt: skip


@dataclass(kw_only=True)
class JsonOptions:
    """How results are printed."""

    as_json: Annotated[bool, Option(
        "Print one JSON object instead of a summary.", "", OUTPUT, flag="--json"
    )] = False  # fmt: skip


@dataclass(kw_only=True)
class OutputOptions(JsonOptions, ForceOptions):
    """How a table is written, and what is said then."""

    formulas: Annotated[str | None, Option(
        "Which CSV values that a spreadsheet could run as formulas get a leading apostrophe: "
        "learnt values (escape-learnt), all values and column names (escape) or none (keep).",
        "KIND", OUTPUT,
        "escape if the schema is that of a release, otherwise escape-learnt")] = None  # fmt: skip


# How the options become a command line.


def read_number(field: Field, text: str) -> Any:
    """Return the number that a text contains; other text as it is, which is then refused."""
    for kind in (int, float):
        with suppress(ValueError):
            if kind is float or int in field.kinds:
                return kind(text)
    return text


def read_text(field: Field, text: Any) -> Any:
    """Return the value of an option on the command line, which is still to be checked."""
    if text is None:
        return field.default
    if field.option.read is not None:
        return field.option.read(text)
    first = field.kinds[0]
    if get_origin(first) is list:
        return list(map(get_args(first)[0], text)) or None
    if first in (int, float):
        return read_number(field, text)
    return Path(text) if first is Path else text


def parsed(command: Callable[..., int | None]) -> Callable[..., Callable[[], int | None]]:
    """Return what Typer calls with the values of a command line: the command with them, for later.

    The fields of the dataclass that annotates the parameter ``options`` become options.
    """
    own = inspect.signature(command, eval_str=True).parameters
    model = own["options"].annotation if "options" in own else None
    found = () if model is None else read_options(model)
    arguments = [each for each in own.values() if each.name != "options"]
    shown = sorted(found, key=lambda each: PANELS.index(each.option.panel))
    parameters = [*arguments, *map(_parameter, shown)]

    @wraps(command)
    def parse(**given: Any) -> Callable[[], int | None]:
        if model is not None:
            texts = {each.name: given.pop(each.name) for each in found}
            values = {each.name: read_text(each, texts[each.name]) for each in found}
            given["options"] = checked(model(**values), model)
        return partial(command, **given)

    parse.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    parse.__annotations__ = {each.name: each.annotation for each in parameters}
    return parse


def _parameter(field: Field) -> inspect.Parameter:
    is_flag, is_list = field.kinds[0] is bool, get_origin(field.kinds[0]) is list
    default: Any = False if is_flag else None
    if field.default is MISSING:
        default = inspect.Parameter.empty
    option = typer.Option(
        field.flag, metavar=field.option.metavar, help=field.help,
        rich_help_panel=field.option.panel, show_default=False,
    )  # fmt: skip
    kind: Any = bool if is_flag else list[str] if is_list else str
    kind = kind if is_flag or default is not None else kind | None
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default,
        annotation=Annotated[kind, option],
    )  # fmt: skip


def workload_spec(
    workload: Path | None, ways: str | None, family: str | None = None
) -> Path | Sequence[int] | dict[str, Any] | None:
    """Return the workload that the options stand for; None is the default."""
    if family is not None and workload is not None:
        raise InputError(
            "--workload and --queries cannot be combined: the file names its families."
        )
    if family is not None and (family == "custom" or family not in FAMILIES):
        named = ", ".join(name for name in FAMILIES if name != "custom")
        raise InputError(f"--queries is {family!r}. Use one of {named}, or a --workload file.")
    if family is not None:
        ways = ways or "2"
    if ways is None:
        return workload
    if workload is not None:
        raise InputError("--workload and --ways cannot be combined. Use one of them.")
    numbers = [part.strip() for part in ways.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in numbers):
        raise InputError(f"--ways is {ways!r}. Use a positive number, or several as 1,2.")
    counts = [int(part) for part in numbers]
    return counts if family is None else {
        "version": 1, "parts": [{"ways": counts, "queries": family}]
    }  # fmt: skip


@contextmanager
def naming_queries(family: str | None) -> Iterator[None]:
    """Make errors about the workload of --queries name the option, not a part of a file."""
    try:
        yield
    except AdaptiveQsError as error:
        words = str(error).removeprefix("workload: part 1: ")
        if family is not None and words != str(error):
            error.args = (f"--queries {family}: {words}",)
        raise


# Files that options name, checked before anything is spent.


def with_sidecar(table: Path | None) -> list[Path]:
    """Return the paths of a table and its sidecar, or no path if there is no table."""
    from adaptive_qs.release.bundle import manifest_path

    return [] if table is None else [table, manifest_path(table)]


def check_table(path: Path, force: bool) -> None:
    """Raise InputError if a table or its sidecar cannot be written, or would replace a file."""
    from adaptive_qs.table.write import check_table_path

    check_table_path(path)
    for file in with_sidecar(path):
        check_file(file, force)


def check_file(path: Path, force: bool) -> None:
    """Refuse a path at which no file can or may be written."""
    io.at_end.enter_context(claimed(path))
    check_new(path, force, "--force")


def chosen_formulas(kind: str | None, schema: Path | None) -> Formulas:
    """Return which texts are escaped; by default all if the schema is that of a release."""
    from adaptive_qs.table.text import check_formulas

    if kind is None:
        kind = "escape" if schema is not None and is_zipfile(schema) else "escape-learnt"
    return check_formulas(kind)


def check_release(path: Path, force: bool) -> None:
    """Refuse a path at which no release bundle can or may be written."""
    from adaptive_qs.table.archive import check_archive_name

    check_file(path, force)
    check_archive_name(path)


def companions(options: Any) -> list[Path]:
    """Return the files of the ledger that the options name, and its anchor."""
    if options.ledger is None:
        return []
    from adaptive_qs.ledger.files import list_own_files

    anchor = getattr(options, "anchor", None)
    return list_own_files(Path(options.ledger)) + ([] if anchor is None else [Path(anchor)])


def resumes(path: Path, options: RunOptions) -> bool:
    """Whether the interrupted run that the options resume has written a file."""
    from adaptive_qs.release.bundle import is_from_interrupted_run

    return options.resume and is_from_interrupted_run(path, options.ledger, options.max_memory)


def check_distinct(outputs: Sequence[Path | None], inputs: Sequence[Path | None]) -> None:
    """Refuse an output that is an input, another output, or one of the files of a table."""
    known = {table: Path(os.path.realpath(table)) for path in filter(None, inputs)
             for table in (inside(path)[0],)}  # fmt: skip
    seen = {*known.values()}
    for path in filter(None, outputs):
        place = Path(os.path.realpath(path))
        problem = "it is also an input or another output" if place in seen else ""
        for table, real in known.items():
            within = os.path.isdir(table) and real in place.parents
            if within or (is_pattern(table) and fnmatch(str(place), str(real))):
                problem = f"it would be one of the files of {table}"
        if problem:
            raise InputError(f"Cannot write to {path}: {problem}. Choose another path.")
        seen.add(place)


def private_inputs(data: Path | None, options: Any, demo_out: Path) -> tuple[Path, Path, Any, bool]:
    """Return the private table, its schema, the options and whether files are replaced.

    With --demo, epsilon is 1 and the output ``demo_out`` by default.
    """
    schema = options.schema
    if options.demo:
        if (data, schema) != (None, None):
            raise InputError("--demo has its own data and schema. Remove DATA and --schema.")
        epsilon = options.epsilon if options.budgeted else 1.0
        renewing = options.force or options.out is None
        options = replace(options, out=options.out or demo_out, epsilon=epsilon)
        return *demo_files(), options, renewing
    if data is None:
        raise InputError("No DATA is set. Name a CSV or Parquet file, or try --demo.")
    if schema is None:
        raise InputError(
            "No schema is set. Use --schema; adaptive-qs schema init DATA proposes one."
        )
    return data, schema, options, options.force


def demo_files() -> tuple[Path, Path]:
    """Return the shipped table and its schema, relative to the working folder if they are in it."""
    from adaptive_qs.table.files import sample_dataset

    sample, here = sample_dataset(), Path.cwd()
    data, schema = (
        path.relative_to(here) if path.is_relative_to(here) else path
        for path in (sample.data, sample.schema)
    )
    return data, schema
