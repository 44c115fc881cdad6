"""The options of all commands in one table, so that they read alike."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import typer

from adaptive_qs.arguments import one_of
from adaptive_qs.errors import AdaptiveQsError, InputError
from adaptive_qs.loop import LEVELS
from adaptive_qs.privacy import DEFAULT_NEIGHBOURS, DEFAULT_WEIGH
from adaptive_qs.run import RunOptions
from adaptive_qs.strategy import MECHANISMS
from adaptive_qs.table.engines import DEFAULT_ENGINE, ENGINES
from adaptive_qs.table.files import FORMATS
from adaptive_qs.workload import FAMILIES

TABLE_HELP = (
    "CSV, CSV.gz, Parquet, Excel, SQLite or DuckDB (of several tables in a file, FILE::NAME); "
    "- for standard input."
)
PrivateTable = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA",
        help=f"Private table: {TABLE_HELP} A folder or 'data/*.csv' stands for all such files.",
    ),
]

_SCHEMA = "Public schema, mbi domain file, or release bundle; needed"
_DEMO = "Run on the shipped sample (UCI Adult) with epsilon 1. Writes, or replaces, {} unless --out"
_LEFT = "How far the ledger must have come: a file on another volume,"
_PRINTED = "or its newest entry as ledger show prints it."
_QUARTERS = "three quarters of the machine's"


class _Entry(NamedTuple):
    """An option of the command line."""

    name: str
    """Its parameter, in a command or in :class:`RunOptions`."""
    metavar: str
    """What its value is called; a flag has none."""
    help: str
    of: tuple[str, ...] = ()
    """Commands, or "run" for those that take a :class:`RunOptions`; empty for all others."""


_PANELS: Mapping[str | None, Sequence[_Entry]] = {
    None: (
        _Entry("schema", "FILE", f"{_SCHEMA} without --demo."),
        _Entry("schema", "FILE", f"{_SCHEMA}.", of=("audit", "evaluate")),
        _Entry(
            "sql",
            "QUERY",
            "One SELECT whose rows are the private table, in the place of DATA; with --database.",
        ),
        _Entry(
            "sql",
            "QUERY",
            "One SELECT whose rows are the private table, in the place of TRUE; with --database.",
            of=("evaluate",),
        ),
        _Entry("database", "FILE", "DuckDB database for --sql; it is opened for reading only."),
        _Entry("workload", "FILE", "Workload file: the queries to answer."),
        _Entry(
            "workload",
            "FILE",
            "Workload file: the marginals or other queries that matter.",
            of=("synthesize",),
        ),
        _Entry("ways", "K", "Queries on all sets of K attributes; several as 1,2. (Default: 2.)"),
        _Entry(
            "ways",
            "K",
            "All K-way marginals; several as 1,2. (Default: 2.)",
            of=("synthesize", "evaluate"),
        ),
        _Entry(
            "target",
            "COLUMN",
            "Column that models trained on the table are to predict: every set of columns asked "
            "for is also asked for together with it.",
            of=("run",),
        ),
        _Entry(
            "queries",
            "FAMILY",
            f"With --ways: {FAMILIES.listed(but='custom')}; custom ones need a --workload file. "
            "(Default: marginal.)",
        ),
        _Entry("mechanism", "NAME", f"{MECHANISMS.listed()}. (Default: auto.)"),
        _Entry(
            "gap",
            "G",
            "Stop solving once the squared error is proven to be within this fraction of "
            "the optimum. (Default: 0.0001.)",
        ),
        _Entry(
            "levels",
            "KIND",
            "Whether marginals may be measured over groups of codes too: auto, where that may pay, "
            f"or off. (Default: {LEVELS[0]}.)",
        ),
        _Entry(
            "demo", "", f"{_DEMO.format('./adult_synthetic.csv')} is given.", of=("synthesize",)
        ),
        _Entry("demo", "", f"{_DEMO.format('./adult_answers.parquet')} is given.", of=("answer",)),
        _Entry("demo", "", "Plan for the schema of the shipped sample (UCI Adult).", of=("plan",)),
        _Entry(
            "rows",
            "N",
            "About how many rows the table will have, as far as is public: adds the rows in a "
            "cell next to the error, and which columns a synthetic table would leave independent.",
            of=("plan",),
        ),
        _Entry(
            "where",
            "CONDITION",
            'Only rows that meet it, such as "sex = F and age >= 65".',
        ),
        _Entry(
            "balance",
            "COLUMN",
            "As many rows of each value, bin or period of this column as of any other.",
        ),
        _Entry("columns", "A,B", "Columns of the marginal, by name; needed."),
        _Entry(
            "fitted",
            "",
            "Counts of the model that tables follow, instead of those measured: closer on average, "
            "without standard errors.",
        ),
        _Entry("ledger", "FILE", "The data set's ledger; needed."),
        _Entry(
            "epsilon", "E", "Privacy loss of all runs together; give it or --rho.", of=("create",)
        ),
        _Entry("rho", "R", "The total in zCDP, instead of --epsilon.", of=("create",)),
        _Entry(
            "discovery_delta",
            "D",
            "Part of delta set aside for runs that discover the values of columns. (Default: 0.)",
            of=("create",),
        ),
        _Entry(
            "discovery_delta",
            "D",
            "Part of delta that has since been spent on discovery. (Default: 0.)",
            of=("restore",),
        ),
        _Entry(
            "rho",
            "R",
            "What else has since been spent (zCDP), of which there is no file.",
            of=("restore",),
        ),
        _Entry(
            "release",
            "FILE",
            "A bundle, answers or a table with its .manifest.json, released since the copy was "
            "made; repeat it for more.",
            of=("restore",),
        ),
        _Entry(
            "release",
            "FILE",
            "A release bundle, answers or a table with the .manifest.json beside it: "
            "check also that it is what a run of this ledger handed over.",
            of=("verify",),
        ),
        _Entry(
            "person",
            "COLUMN",
            "Person column of the schemas whose runs it counts: the total then protects a person "
            "with all rows. (Default: the total protects a row.)",
            of=("create",),
        ),
        _Entry("anchor", "FILE", f"{_LEFT} {_PRINTED}"),
        _Entry("anchor", "FILE", "Anchor to create, on another volume.", of=("create", "anchor")),
        _Entry("out", "FILE", "Where to write, as JSON.", of=("export",)),
        _Entry("out", "FILE", "Where to write.  [default: print]", of=("init", "import")),
    ),
    "Privacy budget": (
        _Entry("epsilon", "E", "Privacy loss of the whole run; give it or --rho."),
        _Entry("delta", "D", "Far below 1 / number of rows. (Default: 1e-9.)"),
        _Entry("rho", "R", "The budget in zCDP, instead of --epsilon."),
        _Entry("cost", "B", "The privacy cost 2 rho, instead of --epsilon."),
        _Entry(
            "learning_share",
            "P",
            "Part of the budget for the bins and values that the schema leaves to be learnt. "
            "(Default: 0.1.)",
        ),
        _Entry(
            "rows_per_person",
            "K",
            "Rows of one person that count at most, where the schema names the person column: "
            "the budget then protects a person with all rows. A public number.",
        ),
        _Entry(
            "rows_per_person",
            "K",
            "Rows of one person that count at most, where the schema names the person column: "
            "the budget then protects a person with all rows. A public number.",
            of=("plan",),
        ),
        _Entry(
            "weigh",
            "KIND",
            "What counts alike: rows, or persons, so that each person is one row in everything "
            "that is published: the average of theirs, made of --rows-per-person equal parts. "
            f"(Default: {DEFAULT_WEIGH}.)",
        ),
        _Entry(
            "neighbours",
            "KIND",
            "Which tables the budget makes alike: add-remove, with and without one row or person, "
            "or replace, with another one in its place, which takes up to twice the noise. "
            f"(Default: {DEFAULT_NEIGHBOURS}.)",
        ),
        _Entry(
            "insecure_seed",
            "N",
            "Reproducible noise, for tests: the outputs are NOT PRIVATE and say so.",
        ),
        _Entry(
            "ledger",
            "FILE",
            "The data set's ledger: counts its budget over all runs, and keeps what an "
            "interrupted run has paid for. adaptive-qs ledger create makes one.",
            of=("run",),
        ),
        _Entry(
            "resume",
            "",
            "Continue the interrupted run of this command in the ledger: nothing is paid "
            "for twice.",
        ),
        _Entry(
            "anchor", "FILE", f"{_LEFT} which is moved forward with it, {_PRINTED}", of=("run",)
        ),
        _Entry(
            "unreviewed_schema",
            "",
            "Take a schema that still says that it was taken from the data, which "
            "is refused otherwise: the privacy promise does not cover what it reveals.",
        ),
        _Entry(
            "public_rows",
            "N",
            "About how many rows the private table has, as far as is public: the budget is "
            "compared with it before any is spent. The true number is never used for this.",
        ),
        _Entry(
            "beyond_limits",
            "",
            "Accept an epsilon, a delta or a noise beyond the limits, which are refused otherwise.",
        ),
    ),
    "Output": (
        _Entry("out", "FILE", f"Synthetic table: {FORMATS.listed()}; - for CSV on stdout."),
        _Entry("out", "FILE", f"Answers: {FORMATS.listed()}; - for CSV on stdout.", of=("answer",)),
        _Entry("out", "FILE", f"Counts: {FORMATS.listed()}.", of=("marginals",)),
        _Entry("release", "FILE", "Release bundle (.zip): sample more tables from it at no cost."),
        _Entry(
            "confidence",
            "P",
            "Probability with which an interval contains the true answer. (Default: 0.95.)",
        ),
        _Entry(
            "rows", "N", "Rows of the synthetic table. (Default: the noisy number of private rows.)"
        ),
        _Entry(
            "rows",
            "N",
            "Rows of the synthetic table. (Default: the noisy number of private rows, or of those "
            "that meet the condition.)",
            of=("sample",),
        ),
        _Entry(
            "seed",
            "N",
            "Seed of the sampling: the same release and seed give the same table on the "
            "same kind of machine with the same versions. (Default: from the operating system.)",
        ),
        _Entry("seed", "N", "Seed of the model's chains. (Default: 0.)", of=("marginals",)),
        _Entry(
            "formulas",
            "KIND",
            "Texts in CSV that a spreadsheet program would run as formulas get an apostrophe: "
            "values that were learnt (escape-learnt), declared values and names of columns as well "
            "(escape), or none (keep). (Default: escape if the schema is that of a release, "
            "otherwise escape-learnt.)",
        ),
        _Entry("force", "", "Replace existing files, which are refused otherwise."),
        _Entry("as_json", "", "Print one JSON object instead of a summary."),
    ),
    "Machine": (
        _Entry(
            "max_candidates",
            "N",
            "Most marginals of several columns that may be measured; the rest is left out by a "
            "rule that does not depend on the rows. (Default: 250,000.)",
        ),
        _Entry(
            "max_cells",
            "N",
            "Most cells of all these marginals together, likewise. (Default: 2^39.)",
        ),
        _Entry(
            "max_memory",
            "SIZE",
            "Such as 3GB: a release that needs more to be read is refused. (Default: "
            f"{_QUARTERS}.)",
        ),
        _Entry(
            "max_memory",
            "SIZE",
            "Such as 3GB: a run that needs more is refused before any budget is spent. (Default: "
            f"{_QUARTERS}.)",
            of=("run", "sample"),
        ),
        _Entry("workers", "N", "Threads; results do not depend on it. (Default: all cores.)"),
        _Entry(
            "engine",
            "NAME",
            f"What keeps and counts the rows: {ENGINES.listed()}; results do not depend on it. "
            f"(Default: {DEFAULT_ENGINE}.)",
        ),
        _Entry(
            "temp_folder",
            "DIR",
            "Where codes of rows go that do not stay in memory; they are removed at the end. "
            "(Default: the system's folder for temporary files.)",
        ),
        _Entry(
            "scheduler",
            "ADDRESS",
            "Dask scheduler, such as tls://host:8786, whose workers keep and count the rows: "
            "they must see the files under the same paths. (Default, for --engine dask: as many "
            "processes on this machine as threads.)",
        ),
        _Entry("jobs", "N", "Threads that solve; they share the memory. (Default: all cores.)"),
    ),
}
"""The options by panel of the help."""
_OPTIONS = {
    (verb, entry.name): (panel, entry)
    for panel, entries in _PANELS.items()
    for entry in entries
    for verb in entry.of or (None,)
}

_MACHINE = {entry.name for entry in _PANELS["Machine"]}

OF_TABLES = tuple(name for name in get_type_hints(RunOptions) if name != "cost")
OF_ANSWERS = tuple(
    "jobs" if name == "workers" else name
    for name in get_type_hints(RunOptions)
    if name not in ("target", "max_candidates", "max_cells")
)
"""The options of a run; ``jobs`` are the ``workers`` of a batch of answers."""
OF_PLAN = (
    "epsilon", "delta", "rho", "cost", "learning_share", "rows_per_person", "weigh", "neighbours",
    "target", "max_candidates", "max_cells", "max_memory", "jobs",
)  # fmt: skip
_KINDS = {
    **get_type_hints(RunOptions),
    "ledger": Path | None,
    "anchor": str | None,
    "max_memory": str | None,
    "temp_folder": Path | None,
    "scheduler": str | None,
    "jobs": int | None,
}


def option(
    name: str,
    metavar: str | None,
    text: str,
    panel: str | None,
    default: str = "",
    parser: Callable[[Any], Any] | None = None,
) -> Any:
    """An option whose default, where there is one to tell, is said in words."""
    return typer.Option(
        name,
        metavar=metavar or "",
        help=f"{text} (Default: {default}.)" if default else text,
        rich_help_panel=panel,
        show_default=False,
        parser=parser,
    )


def double(text: Any) -> float:
    """A number as it was written, or a default."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None
    digits = [int(c) for c in str(text).lower().partition("e")[0] if c.isdecimal()]
    if (any(digits) and not number) or (digits and math.isinf(number)):
        raise typer.BadParameter(
            f"{text} is {number or 0:g} as a double: give a number from 1e-307 to 1e308"
        )
    return number


def parsed(command: Callable[..., int | None]) -> Callable[..., Callable[[], int | None]]:
    """What Typer calls with the values of a command line: the command with them, to be called then.

    Parameters that say nothing to Typer are options of the table. In the place of ``run``, which is
    annotated with names of options of a run, stand those, but for those of the machine, which come
    last; the command gets one :class:`RunOptions`.
    """
    verb = command.__name__.strip("_")
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    names: Sequence[str] = ()
    for each in inspect.signature(command, eval_str=True).parameters.values():
        kind, said = each.annotation, getattr(each.annotation, "__metadata__", None)
        if said is not None and isinstance(said[0], tuple):
            names = said[0]
            for name in names:
                default = getattr(RunOptions, name, None)
                kind = _annotated(_KINDS[name], verb, name, "run")
                place = last if name in _MACHINE else parameters
                place.append(inspect.Parameter(name, each.kind, default=default, annotation=kind))
        elif said is not None:
            parameters.append(each)
        else:
            kind = _annotated(kind, verb, each.name)
            parameters.append(each.replace(annotation=kind))

    @wraps(command)
    def parse(**given: Any) -> Callable[[], int | None]:
        if names:
            run = {"workers" if name == "jobs" else name: given.pop(name) for name in names}
            given["run"] = RunOptions(**run)
        return partial(command, **given)

    parse.__signature__ = inspect.Signature([*parameters, *last])  # type: ignore[attr-defined]
    parse.__annotations__ = {each.name: each.annotation for each in [*parameters, *last]}
    return parse


def _annotated(kind: Any, verb: str, name: str, group: str | None = None) -> Any:
    """A type with the option of this name: that of the command, of its group, or of all."""
    found = _OPTIONS.get((verb, name)) or _OPTIONS.get((group, name))
    panel, entry = found or _OPTIONS[None, name]
    flag = "--json" if name == "as_json" else f"--{name.replace('_', '-')}"
    parser = double if float in (kind, *get_args(kind)) else None
    return Annotated[kind, option(flag, entry.metavar, entry.help, panel, parser=parser)]


def workload_spec(
    workload: Path | None, ways: str | None, family: str | None = None
) -> Path | Sequence[int] | dict[str, Any] | None:
    """The workload that the options stand for; None is the default."""
    if family is not None and workload is not None:
        raise InputError("both --workload and --queries were given: the file names its families")
    if family is not None and (family == "custom" or family not in FAMILIES):
        named = ", ".join(name for name in FAMILIES if name != "custom")
        raise InputError(f"--queries is {family!r}: give one of {named}, or a --workload file")
    if family is not None:
        ways = ways or "2"
    if ways is None:
        return workload
    if workload is not None:
        raise InputError("both --workload and --ways were given: give one of them")
    numbers = [part.strip() for part in ways.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in numbers):
        raise InputError(f"--ways is {ways!r}: give a positive number, or several as 1,2")
    counts = [int(part) for part in numbers]
    if family is None:
        return counts
    one_of("--queries", family, FAMILIES)
    return {"version": 1, "parts": [{"ways": counts, "queries": family}]}


@contextmanager
def naming_queries(family: str | None) -> Iterator[None]:
    """Errors about what `workload_spec` made of --queries name the option, not a file's part."""
    try:
        yield
    except AdaptiveQsError as error:
        words = str(error).removeprefix("workload: part 1: ")
        if family is not None and words != str(error):
            error.args = (f"--queries {family}: {words}",)
        raise
