"""Checks of a synthetic table: what a check is, the registry of checks, and the verdict.

A check measures both tables and judges what it measured. It is one class, named in ``CHECKS``. Its
finding holds a sentence with a grade, and figures: facts, tables and charts. The renderers of
:mod:`adaptive_qs.evaluation.evaluation` show findings and know no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from adaptive_qs.arguments import Registry
from adaptive_qs.evaluation.tables import JointCodes, PairCounts, TablePair, count_pairs
from adaptive_qs.pages.words import combination, listed, quoted, short

if TYPE_CHECKING:
    from adaptive_qs.evaluation.rules import Rule
    from adaptive_qs.machine import PhaseProgress, StepProgress
    from adaptive_qs.pages.words import BarChart
    from adaptive_qs.table.schema import Schema
    from adaptive_qs.workload.workload import QueryWorkload, Workload

T = TypeVar("T")

Grade = Literal["good", "plain", "fair", "poor"]


class GradeWords(NamedTuple):
    """What the verdict says of a grade: its word, the headline, and the suitability for a use."""

    word: str
    headline: str
    suits: str
    suitable: str


GRADES: dict[Grade, GradeWords] = {
    "good": GradeWords("close", "Close to {} in all checks.", "yes", "Suitable for"),
    "plain": GradeWords("no grade", "No overall grade: the marginals cannot be judged.",
                        "not known", "Not evaluated:"),
    "fair": GradeWords("usable", "Usable with care.", "with care", "Use with care for"),
    "poor": GradeWords("far", "At least one check failed.", "no", "Not suitable for"),
}  # fmt: skip
"""The grades from the best to the worst; "plain" means that there is no grade."""


class Word(NamedTuple):
    """A word of the verdict, its grade and its condition; docs/guides/evaluate.md explains it."""

    word: str
    grade: Grade
    holds: Callable[[Any], object] = lambda _: True


# Figures: typed values with the form in which people read them.


class Column(NamedTuple):
    """A column of a table of figures: its heading, and how its values are written."""

    head: str
    form: Callable[[Any], str] = short
    right: bool = False


def number(head: str, form: Callable[[Any], str] = str) -> Column:
    """Return a column of numbers, aligned to the right."""
    return Column(head, form, right=True)


COLUMNS = Column("columns", combination)
"""A column of a table of figures that names several columns of the schema."""


@dataclass(frozen=True)
class Table:
    """A table of figures.

    Attributes:
        caption: what the figures are.
        columns: their headings and forms.
        rows: values, the most important row first.
        printed: maximum number of rows on a terminal. A table with 0 is folded on the page.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Any, ...]]
    printed: int = 10

    def texts(self, most: int) -> Iterator[list[str]]:
        """Yield the cells of the first rows as texts."""
        for row in self.rows[:most]:
            yield [column.form(value) for column, value in zip(self.columns, row)]


@dataclass(frozen=True)
class Facts:
    """Pairs of a name and a sentence."""

    kind: ClassVar[str] = "facts"
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Drawn:
    """Bar charts of the page, made when it is rendered.

    Attributes:
        caption: what they show.
        draw: returns charts, each with a title and a note.
    """

    kind: ClassVar[str] = "drawn"
    caption: str
    draw: Callable[[], Sequence[tuple[str, str, BarChart]]]


Figure = Table | Facts | Drawn

NAMED, FEW_NAMED = 3, 2
"""Maximum number of names in a list, and in one of several lists of a sentence."""


named = partial(listed, most=NAMED)
"""Joins the first names for a sentence, with the number of the others."""


def format_names(names: Sequence[str]) -> str:
    """Return quoted names of columns for a sentence."""
    return named([quoted(name) for name in names])


def plain(text: str) -> str:
    """Return a text with plain spaces."""
    return text.replace("\u00a0", " ")


@dataclass(frozen=True, eq=False)
class Finding:
    """What a check found.

    Attributes:
        grade: how good it is.
        word: the grade in a word.
        said: the finding in a sentence; "" if nothing needs to be said.
        headline: the verdict, if this finding decides it whatever else was found.
        figures: for the part of the check.
        notes: limits of what was measured.
        advice: what to do now.
        caps: by use of the table, the best grade that this finding allows.
    """

    grade: Grade
    word: str
    said: str = ""
    headline: str = ""
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    caps: Mapping[str, Grade] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two tables, and the options of their comparison; owner only.

    Attributes:
        pair: the tables.
        schema: of both.
        marginals: of the sets of columns of the workload.
        promised: the release behind the synthetic table (``Promised``).
        settings: of models (``ModelSettings``).
        queries: of the workload, if they are not the cells of its marginals.
        rules: between columns, declared by the schema or the caller.
        compare: requested pairs of a column of numbers and one of groups.
        accept: criteria of the owner (``Criterion``).
        disclose: positions of columns that somebody may know.
        workers: threads.
        progress: called with a phase and its steps.
        key: facts about the key of a table of a set (``KeyFacts``); None for other tables.
    """

    pair: TablePair
    schema: Schema
    marginals: Workload
    promised: Any
    settings: Any
    queries: QueryWorkload | None = None
    rules: Sequence[Rule] = ()
    compare: Sequence[tuple[str, str]] = ()
    accept: Sequence[Any] = ()
    disclose: Sequence[int] = ()
    workers: int = 1
    progress: PhaseProgress | None = None
    key: Any = None

    def steps(self, phase: str) -> StepProgress | None:
        """Return the function that counts the steps of a phase, if there is one."""
        return None if self.progress is None else partial(self.progress, phase)

    @property
    def rows(self) -> tuple[int, int]:
        """Rows of the true and of the synthetic table."""
        return self.pair.true.num_rows, self.pair.synthetic.num_rows

    def describe_row(self, table: int, row: int, columns: Iterable[int]) -> str:
        """Describe a row by some of its columns; ``table`` is 0 for true and 1 for synthetic."""
        coded, known = (self.pair.true, self.pair.synthetic)[table], self.schema.columns
        labels = ((known[i], known[i].labels_of_codes()[coded.columns[i][row]]) for i in columns)
        return ", ".join(f"{short(column.name)} = {short(str(label))}" for column, label in labels)

    @cached_property
    def joint(self) -> JointCodes:
        """The codes of both tables."""
        return JointCodes(self.pair)

    @cached_property
    def pairs(self) -> PairCounts:
        """The counts of all pairs of attributes of both tables."""
        return count_pairs(self.joint, self.workers, self.steps("pairs"))


class Check:
    """One check. A subclass overrides ``measure`` and ``judge``.

    Attributes:
        name: of its facts, and of their field in JSON.
        title: heading of its figures.
        about: its name in the headline; "" for a check that the headline does not count.
        uses: the uses of a synthetic table that its grade decides.
        shown: when its sentence is printed on a terminal: always, if it is not good ("bad"),
            or if it is the worst of those that are not good ("worst").
        first: whether its figures come first.
        of_numbers: whether it judges numbers and dates, of which few rows say nothing.
        rules: the words of its grade, in the order in which they are tried.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str] = ""
    uses: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[Literal["always", "bad", "worst"]] = "worst"
    first: ClassVar[bool] = False
    of_numbers: ClassVar[bool] = False
    rules: ClassVar[tuple[Word, ...]] = ()

    def measure(self, comparison: Comparison) -> Any | None:
        """Return the facts, or None if there are none, such as without a target column."""
        raise NotImplementedError

    def judge(self, facts: Any, evaluation: Any) -> Finding | None:
        """Return what the facts mean.

        Args:
            facts: what ``measure`` returned.
            evaluation: the facts of all checks (:class:`~adaptive_qs.Evaluation`).
        """
        raise NotImplementedError

    def as_json(self, facts: Any) -> Mapping[str, Any]:
        """Return the fields of JSON for the facts, or for None."""
        return {self.name: facts}

    def word_for(self, found: Any) -> tuple[Grade, str]:
        """Return the grade and the word of the first rule that holds; "plain" and "" for none."""
        return next(((r.grade, r.word) for r in self.rules if r.holds(found)), ("plain", ""))


_HERE = "adaptive_qs.evaluation"
CHECKS: Registry[type[Check]] = Registry(
    {
        "release": f"{_HERE}.evaluation:ReleaseCheck",
        "criteria": f"{_HERE}.accept:AcceptCheck",
        "key": f"{_HERE}.keys:KeysCheck",
        "disclosure": f"{_HERE}.disclosure:DisclosureCheck",
        "rows": f"{_HERE}.rows:RowsCheck",
        "rules": f"{_HERE}.rows:RulesCheck",
        "values": f"{_HERE}.columns:ValuesCheck",
        "group_means": f"{_HERE}.groups:GroupMeansCheck",
        "profiles": f"{_HERE}.groups:ProfilesCheck",
        "correlations": f"{_HERE}.associations:CorrelationsCheck",
        "queries": f"{_HERE}.queries:QueriesCheck",
        "workload": f"{_HERE}.marginals:MarginalsCheck",
        "columns": f"{_HERE}.columns:ColumnsCheck",
        "association": f"{_HERE}.associations:AssociationsCheck",
        "utility": f"{_HERE}.models:ModelsCheck",
    }
)
"""The checks by the names of their facts, in the order of the verdict and of every output."""


def all_checks() -> list[Check]:
    """Return one of each check, in their order."""
    return [CHECKS[name]() for name in CHECKS]


def list_uses() -> dict[str, None]:
    """Return the kinds of use of a synthetic table, in the order of the checks."""
    return dict.fromkeys(use for check in all_checks() for use in check.uses)


MOST_STEPS = 4
"""Maximum number of steps that are advised."""


def overall_finding(
    parts: Sequence[tuple[str, Finding]],
    alarms: Sequence[Finding] = (),
    truth: str = "the true table",
) -> Finding:
    """Return the headline, which is at most as good as the worst finding.

    Each finding has the name of its subject. The first alarm decides the verdict, whatever the
    others are.
    """
    if alarms:
        return Finding("poor", alarms[0].word, alarms[0].headline)
    grade: Grade = max((f.grade for _, f in parts), key=[*GRADES].index, default="plain")
    text = GRADES[grade].headline.format(truth)
    for about, wrong in (("Failed", "poor"), ("Problems", "fair"), ("Not judged", "plain")):
        if words := [f"{what} ({f.word})" for what, f in parts if f.grade == wrong]:
            text += f" {about}: {', '.join(words)}."
    if fine := [what for what, found in parts if found.grade == "good"]:
        text += f" No problems: {', '.join(fine)}."
    return Finding(grade, GRADES[grade].word, text)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What all checks found together.

    Attributes:
        findings: by the names of the checks, of those that found something.
        checks: all of them.
    """

    findings: Mapping[str, Finding]
    checks: Sequence[Check]

    def _found(self) -> Iterable[tuple[Check, Finding]]:
        return [(c, self.findings[c.name]) for c in self.checks if c.name in self.findings]

    @cached_property
    def overall(self) -> Finding:
        """The worst of the findings."""
        parts = [
            (check.about, found)
            for check, found in self._found()
            if check.about and found.said and (check.name, found.grade) != ("queries", "plain")
        ]
        return overall_finding(parts, [f for f in self.findings.values() if f.headline])

    @cached_property
    def uses(self) -> dict[str, Grade]:
        """The grade of each use: the worst of the checks that decide it, and of all caps."""
        order = ("plain", "good", "fair", "poor")  # no grade is better than any other
        uses: dict[str, Grade] = dict.fromkeys(list_uses(), "plain")
        for check, finding in self._found():
            for use in check.uses:
                uses[use] = max(uses[use], finding.grade, key=order.index)
        for finding in self.findings.values():
            for use, cap in finding.caps.items():  # what looks good may be chance
                uses[use] = cap if uses.get(use) == "good" else uses[use]
        return uses

    @property
    def _use(self) -> Finding:
        alarm = any(finding.headline for finding in self.findings.values())
        parts = ["Do not share the table before this is explained."] * alarm
        for grade in ("good", "fair", "poor", "plain"):
            if kinds := [what for what, found in self.uses.items() if found == grade]:
                parts.append(f"{GRADES[grade].suitable} {listed(kinds, len(kinds))}.")
        return Finding("plain", "use", " ".join(parts))

    @property
    def _next(self) -> Finding:
        steps = [step for _, finding in self._found() for step in finding.advice]
        if not steps and self.overall.grade in ("good", "plain"):
            steps = ["Use the table for the requested counts. Check other questions first."]
        elif not steps:
            steps = ["Do not use the table for anything that is lost or far off above."]
        return Finding("plain", "next", " ".join(steps[:MOST_STEPS]))

    @property
    def sentences(self) -> list[Finding]:
        """The overall finding, the uses of the table, all other findings, and what to do."""
        found = [finding for _, finding in self._found() if finding.said]
        return [self.overall, self._use, *found, self._next]

    @property
    def brief(self) -> list[str]:
        """A few sentences for a terminal."""
        first, bad = [], []
        for check, finding in self._found():
            always = check.shown == "always" and not (
                check.name == "workload" and "queries" in self.findings
            )
            if finding.said and (always or (check.shown == "bad" and finding.grade != "good")):
                first.append(finding)
            elif finding.said and finding.grade in ("fair", "poor"):
                bad.append(finding)
        worst = sorted(bad, key=lambda finding: finding.grade != "poor")[:1]
        return [plain(finding.said) for finding in (self.overall, self._use, *first, *worst)]
