"""Options of runs as dataclasses, from which command line, signatures and pages are derived."""

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from textwrap import fill, indent
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from adaptive_qs import arguments
from adaptive_qs.arguments import learning_share, positive_integer, positive_number, shown
from adaptive_qs.errors import InputError
from adaptive_qs.loop import LEVELS
from adaptive_qs.strategy import MECHANISMS
from adaptive_qs.table.engines import DEFAULT_ENGINE, ENGINES

M = TypeVar("M")
C = TypeVar("C", bound=Any)

BUDGET, MODELS, OUTPUT, MACHINE = "Privacy budget", "Models", "Output", "Machine"
PANELS = (None, BUDGET, MODELS, OUTPUT, MACHINE)
"""Sections of the help, in their order; None is the first one."""
DEFAULT_GAP = 1e-4
"""Relative gap of the squared error at which solvers stop."""


class Option(NamedTuple):
    """How an option is shown and checked: the metadata of a dataclass field.

    Attributes:
        help: what it does, in sentences that name other options by their flags.
        metavar: name of its value; empty for a flag.
        panel: section of the help.
        default: the default, where the value of the field does not show it.
        check: returns the valid value, or raises InputError; it gets the name and the value, which
            is not None.
        read: makes a value of its text on the command line; by default the type of the field.
        flag: its name on the command line; by default that of the field.
        python: a sentence on what Python takes besides.
    """

    help: str
    metavar: str = ""
    panel: str | None = None
    default: str = ""
    check: Callable[[str, Any], Any] | None = None
    read: Callable[[str], Any] | None = None
    flag: str = ""
    python: str = ""


class Field(NamedTuple):
    """A field of a dataclass that is an option: its type without the metadata, and its default.

    The default is ``MISSING`` if the option must be given.
    """

    name: str
    kind: Any
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of its value but None, the preferred one first."""
        found = () if get_origin(self.kind) is list else get_args(self.kind)
        return tuple(kind for kind in found if kind is not type(None)) or (self.kind,)

    def check(self, value: Any) -> Any:
        """Return the valid value, or raise InputError."""
        name = self.flag.removeprefix("--")
        if value is None and self.default is None:
            return None
        if self.option.check is not None:
            return self.option.check(name, value)
        if self.kind is bool and not isinstance(value, bool):
            raise InputError(f"{name} is {shown(value)}. Use True or False.")
        if Path in self.kinds and not isinstance(value, str | os.PathLike):
            raise InputError(f"{name} is {shown(value)}. Use the path of a file.")
        if Path in self.kinds:
            arguments.check_path(name, value)
        if self.kinds == (str,) and not isinstance(value, str):
            raise InputError(f"{name} is {shown(value)}. Use a text.")
        return value

    @property
    def help(self) -> str:
        """What it does, with its default."""
        default = self.option.default or (self.default if self.option.metavar else None)
        if default in (None, MISSING, ""):
            return self.option.help
        shown_default = f"{default:g}" if isinstance(default, float) else str(default)
        return f"{self.option.help} (Default: {shown_default}.)"

    @property
    def meaning(self) -> str:
        """The same for callers of Python."""
        text = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda m: m[1].replace("-", "_"), self.help)
        return f"{text} {self.option.python}".strip()


def read_options(model: Any) -> tuple[Field, ...]:
    """Return the fields of a dataclass that are options, in their order."""
    hints = get_type_hints(model, include_extras=True)
    found = []
    for each in fields(model):
        for option in getattr(hints[each.name], "__metadata__", ()):
            if isinstance(option, Option):
                found.append(Field(each.name, hints[each.name].__origin__, each.default, option))
    return tuple(found)


def checked(given: Any, model: type[M]) -> M:
    """Return the options of a model with an object's values; InputError names an invalid one."""
    found = read_options(model)
    return model(**{each.name: each.check(getattr(given, each.name)) for each in found})


def with_options(model: type) -> Callable[[Callable[..., M]], Callable[..., M]]:
    """Return a decorator that gives a function the options of a model as keywords.

    The function gets them, checked, as its parameter ``options``. Its signature and its docstring
    then list them.
    """

    def decorate(function: Callable[..., M]) -> Callable[..., M]:
        parameters = inspect.signature(function).parameters.values()
        own = [each for each in parameters if each.name != "options"]
        made = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=each.default,
                annotation=each.kind,
            )
            for each in read_options(model)
        ]
        ordered = sorted([*own, *made], key=lambda each: each.kind)
        signature = inspect.Signature(ordered)
        names = [each.name for each in made]

        @wraps(function)
        def call(*positional: Any, **named: Any) -> M:
            try:
                given = signature.bind(*positional, **named).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            options = model(**{name: given.pop(name) for name in names if name in given})
            return function(**given, options=checked(options, model))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = _with_arguments(function.__doc__, model)
        return call

    return decorate


def documented(model: C) -> C:
    """Add the options of a dataclass to its docstring, and their plain types to its signature."""
    model.__doc__ = _with_arguments(model.__doc__, model)
    kinds = {each.name: each.kind for each in read_options(model)}
    parameters = inspect.signature(model).parameters.values()
    plain = [each.replace(annotation=kinds.get(each.name, each.annotation)) for each in parameters]
    model.__signature__ = inspect.Signature(plain)
    return model


def _with_arguments(text: str | None, model: type) -> str | None:
    if text is None:  # python -OO
        return None
    meanings = [f"{each.name}: {each.meaning}" for each in read_options(model)]
    filled = (indent(fill(each, 92, subsequent_indent="    "), "        ") for each in meanings)
    head, mark, rest = text.partition("\n    Args:\n")
    own, gap, tail = rest.partition("\n\n")
    return f"{head}{mark}{own}\n" + "\n".join(filled) + gap + tail


def _choice(known: Any) -> Callable[[str, Any], str]:
    return lambda name, value: arguments.check_choice(name, value, known)


def check_public_rows(name: str, value: Any) -> int | None:
    """Return a public number of rows."""
    from adaptive_qs.privacy.budget import check_public_rows

    return check_public_rows(value, name)


@dataclass(kw_only=True)
class PromiseOptions:
    """The promise."""

    epsilon: Annotated[float | None, Option(
        "Privacy loss of the whole run. Required, unless --rho is set.", "E", BUDGET,
        check=positive_number)] = None  # fmt: skip
    delta: Annotated[float | None, Option(
        "Delta of the whole run. Choose it far below 1 / number of rows.", "D", BUDGET, "1e-9"
    )] = None  # fmt: skip
    rho: Annotated[float | None, Option(
        "Budget in zCDP, instead of --epsilon.", "R", BUDGET, check=positive_number
    )] = None  # fmt: skip


@dataclass(kw_only=True)
class NeighbourOptions:
    """Which tables are neighbours."""

    neighbours: Annotated[str, Option(
        "Definition of neighbouring tables: add-remove (one row or person more or less) or replace "
        "(one row or person exchanged; up to twice the noise).", "KIND", BUDGET
    )] = "add-remove"  # fmt: skip


@dataclass(kw_only=True)
class LimitOptions:
    """A consent."""

    beyond_limits: Annotated[bool, Option(
        "Accept an epsilon, a delta or noise beyond the limits.", "", BUDGET)] = False  # fmt: skip


@dataclass(kw_only=True)
class UnitOptions(NeighbourOptions):
    """What is protected."""

    rows_per_person: Annotated[int | None, Option(
        "Maximum number of rows per person that count, a public number. Required if the schema "
        "names a person column.", "K", BUDGET
    )] = None  # fmt: skip


@dataclass(kw_only=True)
class BudgetOptions(UnitOptions, PromiseOptions):
    """What is spent, and what it protects."""

    learning_share: Annotated[float, Option(
        "Part of the budget for the bins and values that the schema leaves open.", "P", BUDGET,
        check=lambda _, value: learning_share(value))] = arguments.DEFAULT_SHARE  # fmt: skip

    @property
    def budgeted(self) -> bool:
        """Whether a budget is given."""
        given = self.epsilon, self.rho, getattr(self, "cost", None)
        return any(value is not None for value in given)


@dataclass(kw_only=True)
class CostOptions:
    """The budget of answers as He et al. give it."""

    cost: Annotated[float | None, Option(
        "Budget as the privacy cost 2 rho, instead of --epsilon.", "B", BUDGET,
        check=positive_number)] = None  # fmt: skip


@dataclass(kw_only=True)
class PublicRows:
    """What is public of the size of the table."""

    public_rows: Annotated[int | None, Option(
        "Approximate number of rows, from public knowledge. Used to check the budget before it is "
        "spent; the true number is never used.", "N", BUDGET,
        check=check_public_rows)] = None  # fmt: skip


@dataclass(kw_only=True)
class MemoryOptions:
    """The memory ceiling."""

    max_memory: Annotated[str | int | None, Option(
        "Memory limit, such as 3GB. A command that needs more is refused before it spends or "
        "writes anything.", "SIZE", MACHINE, "three quarters of the machine's",
        python="A number is in bytes.")] = None  # fmt: skip


@dataclass(kw_only=True)
class MachineOptions(MemoryOptions):
    """What a command takes of the machine; no result depends on it."""

    workers: Annotated[int | None, Option(
        "Threads. Results do not depend on them.", "N", MACHINE, "all cores")] = None  # fmt: skip


@dataclass(kw_only=True)
class CountingOptions:
    """What keeps and counts the rows."""

    engine: Annotated[str, Option(
        f"Engine that stores and counts the rows: {ENGINES.listed()}. Results do not depend on it.",
        "NAME", MACHINE, check=_choice(ENGINES))] = DEFAULT_ENGINE  # fmt: skip
    scheduler: Annotated[Any, Option(
        "Address of a Dask scheduler, such as tls://host:8786. Its workers must see the files "
        "under the same paths.", "ADDRESS", MACHINE, read=str,
        python="A distributed.Client is accepted, too.")] = None  # fmt: skip


@dataclass(kw_only=True)
class RunOptions(CountingOptions, MachineOptions, LimitOptions, PublicRows, BudgetOptions):
    """The options of every run on a private table."""

    insecure_seed: Annotated[int | None, Option(
        "Reproducible noise, for tests. The outputs are NOT PRIVATE and are marked so.", "N",
        BUDGET, check=arguments.natural_number)] = None  # fmt: skip
    ledger: Annotated[Path | str | None, Option(
        "Ledger of the data set, made by adaptive-qs ledger create. It counts the budget of all "
        "runs and stores the measurements of an interrupted run.", "FILE", BUDGET
    )] = None  # fmt: skip
    resume: Annotated[bool, Option(
        "Continue the interrupted run of this command in the ledger. Nothing is paid for twice.",
        "", BUDGET)] = False  # fmt: skip
    anchor: Annotated[str | Path | None, Option(
        "Minimum state of the ledger, to detect old copies: a file on another volume that is "
        "updated with the ledger, or the newest entry as printed by ledger show.", "FILE", BUDGET
    )] = None  # fmt: skip
    unreviewed_schema: Annotated[bool, Option(
        "Accept a schema that is still marked as taken from the data. The privacy promise does "
        "not cover what such a schema reveals.", "", BUDGET)] = False  # fmt: skip
    temp_folder: Annotated[Path | str | None, Option(
        "Folder for encoded rows that do not fit in memory. They are deleted at the end.", "DIR",
        MACHINE, "the system's folder for temporary files")] = None  # fmt: skip

    @property
    def insecure(self) -> bool:
        """Whether the noise comes from a seed."""
        return self.insecure_seed is not None


@dataclass(kw_only=True)
class SelectionOptions(MachineOptions):
    """Which marginals a run of tables can measure."""

    target: Annotated[str | None, Option(
        "Column that models will predict. Adds each set of columns of the workload again, extended "
        "by this column.", "COLUMN")] = None  # fmt: skip
    max_candidates: Annotated[int | None, Option(
        "Maximum number of multi-column marginals to choose from. Others are dropped by a rule "
        "that does not depend on the data.", "N", MACHINE, "250,000", check=positive_integer
    )] = None  # fmt: skip
    max_cells: Annotated[int | None, Option(
        "Maximum number of cells of all these marginals together.", "N", MACHINE, "2^39",
        check=positive_integer)] = None  # fmt: skip


@dataclass(kw_only=True)
class SynthesizeOptions(SelectionOptions, RunOptions):
    """The options of synthetic tables."""

    workload: Annotated[Any, Option(
        "Workload file: the marginals or other queries that matter.", "FILE",
        default="all 2-way marginals", read=Path,
        python="A number of ways, several numbers, parsed JSON and a Workload are accepted, too."
    )] = None  # fmt: skip
    levels: Annotated[str, Option(
        "Whether marginals may be measured with grouped codes: auto (if this may reduce the error) "
        "or off.", "KIND", check=_choice(LEVELS))] = LEVELS[0]  # fmt: skip


@dataclass(kw_only=True)
class MechanismOptions:
    """How queries are measured."""

    mechanism: Annotated[str, Option(
        f"How queries are measured: {MECHANISMS.listed()}.", "NAME")] = "auto"  # fmt: skip
    gap: Annotated[float, Option(
        "Stop solving once the squared error is proven to be within this fraction of the optimum.",
        "G", check=positive_number)] = DEFAULT_GAP  # fmt: skip


@dataclass(kw_only=True)
class AnswerOptions(MechanismOptions, CostOptions, RunOptions):
    """The options of answers."""


@dataclass(kw_only=True)
class PlanOptions(MechanismOptions, MachineOptions, PublicRows, CostOptions, BudgetOptions):
    """The options of a plan of answers, which reads no table."""


@dataclass(kw_only=True)
class EvaluateOptions(MachineOptions):
    """The options of a comparison of one table."""

    rules: Annotated[list[str] | Any | None, Option(
        'Rule to check, such as "start <= end" or "city determines country". Repeat the option '
        "for more rules.", "TEXT", flag="--rule", python="Several are a list.")] = None  # fmt: skip
    compare: Annotated[str, Option(
        "Means and medians to show first, such as 'price by district, tips by vendor'.", "TEXT"
    )] = ""  # fmt: skip
    accept: Annotated[Any, Option(
        "Criteria with limits that were fixed beforehand. If one is not met, the exit code is 5.",
        "FILE", read=Path, python="Their content is accepted, too.")] = None  # fmt: skip
    disclose: Annotated[str, Option(
        "Show what these columns disclose if somebody knows them, such as 'age, sex, district'.",
        "COLUMNS")] = ""  # fmt: skip
    target: Annotated[str | None, Option(
        "Train models that predict this column on either table, and test them on true rows.",
        "COLUMN", MODELS)] = None  # fmt: skip
    repeats: Annotated[int, Option(
        "Splits that models are trained and tested on.", "N", MODELS)] = 5  # fmt: skip
    seed: Annotated[int, Option("Seed of the splits and the models.", "N", MODELS)] = 0
    release: Annotated[Any, Option(
        "Release bundle of SYNTHETIC, for its privacy promise and for what was measured.", "FILE",
        default="the statement next to SYNTHETIC", read=Path,
        python="A Release is accepted, too.")] = None  # fmt: skip
