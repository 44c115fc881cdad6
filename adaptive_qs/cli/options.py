"""The options of all commands, in one place so that they read alike."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_qs.arguments import one_of
from adaptive_qs.errors import AdaptiveQsError, InputError
from adaptive_qs.run.request import RunOptions
from adaptive_qs.strategy import MECHANISMS
from adaptive_qs.workload import FAMILIES

_BUDGET, _OUTPUT, _MACHINE = "Privacy budget", "Output", "Machine"


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
    """A number as it was written, or a default.

    Raises:
        typer.BadParameter: it is no number, or no double is near it: what it became is said.
    """
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


def number_option(name: str, metavar: str, text: str, panel: str | None, default: str = "") -> Any:
    """An option that takes a real number."""
    return option(name, metavar, text, panel, default, parser=double)


TABLE_HELP = "CSV, CSV.gz or Parquet; - for standard input."
_SCHEMA_HELP = "Public schema, mbi domain file, or release bundle; needed"
SchemaPath = Annotated[
    Path | None, option("--schema", "FILE", f"{_SCHEMA_HELP} without --demo.", None)
]
NeededSchemaPath = Annotated[Path | None, option("--schema", "FILE", f"{_SCHEMA_HELP}.", None)]
WorkloadPath = Annotated[
    Path | None, option("--workload", "FILE", "Workload file: the marginals that matter.", None)
]
Ways = Annotated[
    str | None, option("--ways", "K", "All K-way marginals; several as 1,2.", None, "2")
]
QueryFile = Annotated[
    Path | None, option("--workload", "FILE", "Workload file: the queries to answer.", None)
]
QueryWays = Annotated[
    str | None,
    option("--ways", "K", "Queries on all sets of K attributes; several as 1,2.", None, "2"),
]
Queries = Annotated[
    str | None,
    option(
        "--queries",
        "FAMILY",
        f"With --ways: {FAMILIES.listed(but='custom')}.",
        None,
        "marginal",
    ),
]
Mechanism = Annotated[
    str,
    option(
        "--mechanism",
        "NAME",
        f"{MECHANISMS.listed()}.",
        None,
        "auto",
    ),
]
Gap = Annotated[
    float | None,
    number_option(
        "--gap",
        "G",
        "Stop solving where the squared error is proven to be within this part of the least.",
        None,
        "0.0001",
    ),
]
Reference = Annotated[
    str,
    option(
        "--reference",
        "KIND",
        "How unmeasured interactions are filled: product (independence) or uniform (AIM+GReM as "
        "published).",
        None,
        "product",
    ),
]
_DEMO = "Run on the shipped sample (UCI Adult) with epsilon 1. Writes, or replaces, {} unless "
Demo = Annotated[
    bool,
    option("--demo", None, f"{_DEMO.format('./adult_synthetic.csv')}--out is given.", None),
]
DemoPlan = Annotated[
    bool, option("--demo", None, "Plan for the schema of the shipped sample (UCI Adult).", None)
]
DemoAnswer = Annotated[
    bool,
    option("--demo", None, f"{_DEMO.format('./adult_answers.parquet')}--out is given.", None),
]

Epsilon = Annotated[
    float | None,
    number_option("--epsilon", "E", "Privacy loss of the whole run; give it or --rho.", _BUDGET),
]
Delta = Annotated[
    float | None,
    number_option("--delta", "D", "Far below 1 / number of rows.", _BUDGET, "1e-9"),
]
Rho = Annotated[
    float | None, number_option("--rho", "R", "The budget in zCDP, instead of --epsilon.", _BUDGET)
]
Cost = Annotated[
    float | None,
    number_option("--cost", "B", "The privacy cost 2 rho, instead of --epsilon.", _BUDGET),
]
LearningShare = Annotated[
    float,
    number_option(
        "--learning-share",
        "P",
        "Part of the budget for the bins and values that the schema leaves to be learnt.",
        _BUDGET,
        "0.1",
    ),
]
InsecureSeed = Annotated[
    int | None,
    option(
        "--insecure-seed",
        "N",
        "Reproducible noise, for tests: the outputs are NOT PRIVATE and say so.",
        _BUDGET,
    ),
]
Ledger = Annotated[
    Path | None,
    option(
        "--ledger",
        "FILE",
        "The data set's ledger: counts its budget over all runs, and keeps what an interrupted run "
        "has paid for. adaptive-qs ledger create makes one.",
        _BUDGET,
    ),
]
Anchor = Annotated[
    str | None,
    option(
        "--anchor",
        "FILE",
        "How far the ledger must have come: a file on another volume, which is brought forward "
        "with it, or its newest entry as ledger show prints it.",
        _BUDGET,
    ),
]
Resume = Annotated[
    bool,
    option(
        "--resume",
        None,
        "Go on with the interrupted run of this command in the ledger: nothing is paid twice.",
        _BUDGET,
    ),
]
UnreviewedSchema = Annotated[
    bool,
    option(
        "--unreviewed-schema",
        None,
        "Take a schema that still says that it was taken from the data, which is refused "
        "otherwise: the privacy promise does not cover what it tells.",
        _BUDGET,
    ),
]

_TABLE_HELP = "Synthetic table: .csv, .csv.gz or .parquet."
Out = Annotated[Path | None, option("--out", "FILE", _TABLE_HELP, _OUTPUT)]
RequiredOut = Annotated[Path, option("--out", "FILE", _TABLE_HELP, _OUTPUT)]
ReleaseOut = Annotated[
    Path | None,
    option(
        "--release",
        "FILE",
        "Release bundle (.zip): sample more tables from it, free of charge.",
        _OUTPUT,
    ),
]
AnswersOut = Annotated[
    Path | None, option("--out", "FILE", "Answers: .parquet, .csv or .csv.gz.", _OUTPUT)
]
FormulasKind = Annotated[
    str,
    option(
        "--formulas",
        "KIND",
        "Values in CSV that a spreadsheet program would run as formulas get an apostrophe: those "
        "that were learnt (escape-learnt), declared ones as well (escape), or none (keep).",
        _OUTPUT,
        "escape-learnt",
    ),
]
Confidence = Annotated[
    float,
    number_option(
        "--confidence",
        "P",
        "Probability with which an interval holds the true answer.",
        _OUTPUT,
        "0.95",
    ),
]
Rows = Annotated[
    int | None,
    option(
        "--rows", "N", "Rows of the synthetic table.", _OUTPUT, "the noisy number of private rows"
    ),
]
PlanRows = Annotated[
    int | None,
    option(
        "--rows",
        "N",
        "About how many rows the table will have, as far as is public: tells the rows of a cell "
        "beside the error, and which columns a synthetic table would leave independent.",
        None,
    ),
]
PublicRows = Annotated[
    int | None,
    option(
        "--public-rows",
        "N",
        "About how many rows the private table has, as far as is public: the budget is compared "
        "with it before any is spent. The true number is never looked at for that.",
        _BUDGET,
    ),
]
BeyondLimits = Annotated[
    bool,
    option(
        "--beyond-limits",
        None,
        "Go on with an epsilon, a delta or a noise beyond the limits, which are refused otherwise.",
        _BUDGET,
    ),
]
Seed = Annotated[
    int | None,
    option(
        "--seed",
        "N",
        "Seed of the sampling: the same release and seed give the same table on the same kind of "
        "machine with the same versions.",
        _OUTPUT,
        "from the operating system",
    ),
]
Force = Annotated[
    bool, option("--force", None, "Replace existing files, which are refused otherwise.", _OUTPUT)
]
Json = Annotated[
    bool, option("--json", None, "Print one JSON object instead of a summary.", _OUTPUT)
]

MaxMemory = Annotated[
    str | None,
    option(
        "--max-memory",
        "SIZE",
        "Such as 3GB: a run that needs more is refused before any budget is spent.",
        _MACHINE,
        "three quarters of the machine's",
    ),
]
ReadMemory = Annotated[
    str | None,
    option(
        "--max-memory",
        "SIZE",
        "Such as 3GB: a release that needs more to be read is refused.",
        _MACHINE,
        "three quarters of the machine's",
    ),
]
Workers = Annotated[
    int | None,
    option("--workers", "N", "Threads; results do not depend on it.", _MACHINE, "all cores"),
]

Jobs = Annotated[
    int | None,
    option("--jobs", "N", "Threads that solve; they share the memory.", _MACHINE, "all cores"),
]


RUN: Mapping[str, tuple[Any, Any]] = {
    "epsilon": (Epsilon, None),
    "delta": (Delta, None),
    "rho": (Rho, None),
    "cost": (Cost, None),
    "learning_share": (LearningShare, 0.1),
    "insecure_seed": (InsecureSeed, None),
    "ledger": (Ledger, None),
    "resume": (Resume, False),
    "anchor": (Anchor, None),
    "unreviewed_schema": (UnreviewedSchema, False),
    "public_rows": (PublicRows, None),
    "beyond_limits": (BeyondLimits, False),
    "max_memory": (MaxMemory, None),
    "workers": (Workers, None),
    "jobs": (Jobs, None),
}
"""The options of a run and their defaults; ``jobs`` are the ``workers`` of a batch of answers."""
OF_TABLES = tuple(name for name in RUN if name not in ("cost", "jobs"))
OF_ANSWERS = tuple(name for name in RUN if name != "workers")
OF_PLAN = ("epsilon", "delta", "rho", "cost", "learning_share", "max_memory", "jobs")
_LAST = ("max_memory", "workers", "jobs")


def takes_run(names: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options of a run, which reach it as one ``RunOptions``.

    Those of the budget stand in the place of its parameter ``run``, those of the machine last.

    Args:
        names: of :data:`RUN`.
    """

    def of(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:
            run = {name: given.pop(name) for name in names}
            if "jobs" in run:
                run["workers"] = run.pop("jobs")
            command(run=RunOptions(**run), **given)

        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())
        place = list(signature.parameters).index("run")
        options = {
            name: inspect.Parameter(name, own[place].kind, default=default, annotation=kind)
            for name, (kind, default) in RUN.items()
            if name in names
        }
        last = [options.pop(name) for name in _LAST if name in options]
        parameters = [*own[:place], *options.values(), *own[place + 1 :], *last]
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return of


def workload_spec(workload: Path | None, ways: str | None) -> Path | Sequence[int] | None:
    """The workload that the two options stand for; None is the default.

    Raises:
        InputError: both were given, or ways are not positive integers.
    """
    if ways is None:
        return workload
    if workload is not None:
        raise InputError("both --workload and --ways were given: give one of them")
    numbers = [part.strip() for part in ways.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in numbers):
        raise InputError(f"--ways is {ways!r}: give a positive number, or several as 1,2")
    return [int(part) for part in numbers]


def query_spec(
    workload: Path | None, ways: str | None, family: str | None
) -> Path | Sequence[int] | dict[str, Any] | None:
    """The workload of queries that the three options stand for; None is the default.

    Raises:
        InputError: both --workload and one of the others, ways that are not positive integers, or
            an unknown family.
    """
    if family is None:
        return workload_spec(workload, ways)
    if workload is not None:
        raise InputError("both --workload and --queries were given: the file names its families")
    one_of("--queries", family, FAMILIES)
    numbers = workload_spec(None, ways or "2")
    return {"version": 1, "parts": [{"ways": numbers, "queries": family}]}


@contextmanager
def naming_queries(family: str | None) -> Iterator[None]:
    """Errors about what `query_spec` made of --queries name the option, not a file's part."""
    try:
        yield
    except AdaptiveQsError as error:
        words = str(error).removeprefix(_SPEC_PLACE)
        if family is not None and words != str(error):
            error.args = (f"--queries {family}: {words}",)
        raise


_SPEC_PLACE = "workload: part 1: "
"""Where errors about the content of a workload that is no file are."""
