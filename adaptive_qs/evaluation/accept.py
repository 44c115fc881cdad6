"""Acceptance criteria: limits that the owner fixes before a table is made, checked one by one.

Israel's birth registry was released so (Hod and Canetti 2024, arXiv 2405.00267).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.disclosure import refuse_distance
from adaptive_qs.evaluation.groups import LEAST_ROWS, compare_means, group_by_codes, read_values
from adaptive_qs.evaluation.models import train_all
from adaptive_qs.evaluation.rows import count_combinations
from adaptive_qs.evaluation.rules import check_rules
from adaptive_qs.evaluation.tables import DAY, Numbers
from adaptive_qs.jsonfile import first_complaint, read_json
from adaptive_qs.pages.words import counted, short, significant
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import all_sets

Found = tuple[float, str]
"""A value, and where in the tables it was found."""


class Criterion(BaseModel):
    """A measure of two tables, and the largest value that is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    limit: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def named(self) -> Iterator[str]:
        """Yield the columns that the criterion names."""
        yield from getattr(self, "columns", ())

    @property
    def text(self) -> str:
        """Description of the measure."""
        fields = self.model_dump(exclude={"limit", "measure"}, exclude_defaults=True)
        parts = (f"{k} {', '.join(v) if isinstance(v, tuple) else v}" for k, v in fields.items())
        return ", ".join([str(getattr(self, "measure", "")).replace("_", " "), *parts])

    def find(self, comparison: Comparison) -> Found:
        """Return the value that the limit is for."""
        raise NotImplementedError


class Counts(Criterion):
    """The cell of all marginals of some ways whose counts are furthest apart.

    Ratios are of the shares of the rows, the larger by the smaller one, in cells with enough true
    rows. Differences are of the shares.
    """

    measure: Literal["count_ratio", "count_difference"]
    ways: Annotated[int, Field(ge=1)]
    least_rows: Annotated[int, Field(ge=1)] = LEAST_ROWS

    def find(self, comparison: Comparison) -> Found:
        """Return the largest ratio or difference."""
        joint, best, where = comparison.joint, 0.0, ""
        for clique in map(tuple, all_sets(joint.pair.domain, [self.ways])[0].tolist()):
            cells, true, made = count_combinations(joint, clique)
            p, q = true / true.sum(), made / made.sum()
            if self.measure == "count_difference":
                apart = np.abs(p - q)
            else:
                with np.errstate(divide="ignore", invalid="ignore"):
                    apart = np.where(true >= self.least_rows, np.maximum(p / q, q / p), 1.0)
            if (largest := float(apart.max())) > best:
                row = int(np.argmax(cells == np.argmax(apart)))
                place = (0, row) if row < joint.true_rows else (1, row - joint.true_rows)
                best, where = largest, comparison.describe_row(*place, clique)
        return best, where


class Means(Criterion):
    """The means of a number by the values of another column, in its unit or in days."""

    measure: Literal["group_means"]
    number: str
    by: str

    def named(self) -> Iterator[str]:
        yield from (self.number, self.by)

    def find(self, comparison: Comparison) -> Found:
        """Return the largest difference of the mean of a group with 10 true rows."""
        pair, schema = comparison.pair, comparison.schema
        column = schema.column(self.number)
        values, by = read_values(pair, column), schema.names.index(self.by)
        found = values and compare_means(values, group_by_codes(pair, schema, by))
        if not found:
            raise InputError(f"{self.text}: no number has two groups of {LEAST_ROWS} rows.")
        apart = np.abs(found.means[1] - found.means[0]) / (DAY if column.kind == "moments" else 1)
        worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        value = float(apart[worst])
        return (np.inf if np.isnan(value) else value), f"{short(self.by)} = {found.labels[worst]}"


class Regression(Criterion):
    """The coefficients of a linear regression of a number on other columns, by least squares.

    Numbers are in units of their standard deviation in the true table. Each other value than the
    most frequent one has a coefficient; rows with a missing or rare value are left out.
    """

    measure: Literal["regression"]
    number: str
    columns: Annotated[tuple[str, ...], Field(min_length=1, strict=False)]

    def named(self) -> Iterator[str]:
        yield from (self.number, *self.columns)

    def find(self, comparison: Comparison) -> Found:
        """Return the largest difference of a coefficient."""
        features = [_features(comparison, comparison.schema.column(n)) for n in self.named()]
        names = [name for part in features[1:] for name in part[0]]
        if len(features[0][0]) != 1 or features[0][0][0] != self.number:
            raise InputError(f"{self.text}: {self.number!r} is no number or date.")
        fitted = []
        for table in (0, 1):
            whole = np.column_stack([part[1 + table] for part in features])
            whole = whole[~np.isnan(whole).any(axis=1)]
            design = np.column_stack([np.ones(len(whole)), whole[:, 1:]])
            fitted.append(np.linalg.lstsq(design, whole[:, 0])[0][1:])
        apart = np.abs(fitted[1] - fitted[0])
        worst = int(np.argmax(apart))
        return float(apart[worst]), (
            f"{names[worst]}: {significant(fitted[0][worst])}, now {significant(fitted[1][worst])}"
        )


def _features(comparison: Comparison, column: ColumnBase) -> tuple[list[str], Numbers, Numbers]:
    """Return the names of the features of a column and its features in both tables, NaN for none.

    A number is one feature; the codes of other columns are indicators of the values.
    """
    pair, position = comparison.pair, comparison.schema.names.index(column.name)
    true, made = (pair.find_amounts(column, table) for table in (0, 1))
    if true is not None and made is not None:
        middle, deviation = np.nanmean(true), np.nanstd(true) or 1.0
        first, second = ((each - middle)[:, None] / deviation for each in (true, made))
        return [column.name], first, second
    counts = pair.margins[0][position].copy()
    if (missing := column.missing_code) is not None:
        counts[missing] = 0
    kept = np.flatnonzero(counts >= LEAST_ROWS)
    kept = kept[np.argsort(-counts[kept], kind="stable")][1:]  # the first is the base
    base, labels = int(np.argmax(counts)), column.labels_of_codes()
    tables = []
    for table in (pair.true, pair.synthetic):
        codes = table.columns[position]
        known = np.isin(codes, [*kept, base])[:, None]
        tables.append(np.where(known, codes[:, None] == kept, np.nan))
    return [f"{column.name} = {labels[k]}" for k in kept.tolist()], tables[0], tables[1]


class Propensity(Criterion):
    """The area under the curve of boosted trees that tell synthetic rows from true ones.

    They learn from half of equally many rows of both tables and judge the others. A guess has 0.5.
    """

    measure: Literal["propensity"]

    def find(self, comparison: Comparison) -> Found:
        pair, rng = comparison.pair, np.random.default_rng(comparison.settings.seed)
        rows = min(*comparison.rows, 2 * comparison.settings.max_rows)
        kinds, parts = [], [list[Numbers](), list[Numbers]()]
        for k, column in enumerate(comparison.schema.columns):
            found = [pair.find_amounts(column, table) for table in (0, 1)]
            known = all(each is not None for each in found)
            kinds.append(known or pair.domain.attributes[k].ordered)
            for t, coded in enumerate((pair.true, pair.synthetic)):
                parts[t].append(np.asarray(found[t] if known else coded.columns[k], float))
        drawn = (np.column_stack(part)[rng.permutation(len(part[0]))[:rows]] for part in parts)
        table, labels = np.concatenate([*drawn]), np.repeat([0, 1], rows)
        order = rng.permutation(2 * rows)
        train, test = order[:rows], order[rows:]
        if len(np.unique(labels[train])) < 2 or len(np.unique(labels[test])) < 2:
            raise InputError("propensity: the tables have too few rows. Use larger tables.")
        return train_all([(kinds, [(table, labels)] * 2, (train, test), 0)], 1, None)[0][0], ""


class Unique(Criterion):
    """The rows that equal, in some or all columns, a true row that is unique there."""

    measure: Literal["unique_matches"]
    columns: Annotated[tuple[str, ...], Field(strict=False)] = ()

    def find(self, comparison: Comparison) -> Found:
        """Return the share of the synthetic rows that match a unique true row."""
        clique = tuple(map(comparison.schema.names.index, self.columns))
        _, true, made = count_combinations(comparison.joint, clique)
        return float(made[true == 1].sum() / made.sum()), ""


class Broken(Criterion):
    """The largest share of rows that break a declared rule."""

    measure: Literal["rules"]

    def find(self, comparison: Comparison) -> Found:
        """Return the share of the synthetic rows that break the most broken rule."""
        found = check_rules(comparison.joint, comparison.rules, "declared")
        if not found:
            raise InputError("rules: none is declared. Declare one, or remove the criterion.")
        worst = max(found, key=lambda rule: rule.broken_synthetic)
        return worst.broken_synthetic, worst.rule if worst.broken_synthetic else ""


AnyCriterion = Annotated[
    Counts | Means | Regression | Propensity | Unique | Broken, Field(discriminator="measure")
]


class Criteria(BaseModel, extra="forbid", strict=True):
    """The file of ``--accept``."""

    version: Literal[1]
    criteria: Annotated[list[AnyCriterion], Field(min_length=1)]


def load_criteria(source: str | Path | Mapping[str, Any], schema: Schema) -> Sequence[Criterion]:
    """Return the criteria of a file or of its parsed JSON.

    Raise InputError if they cannot be read, or name a column that the schema does not have.
    """
    named = "criteria" if isinstance(source, Mapping) else str(source)
    content = source if isinstance(source, Mapping) else read_json(source, InputError)
    try:
        found = Criteria.model_validate(content).criteria
    except ValidationError as error:
        complaint = first_complaint(error)
        place = ": criterion ".join([named, *(str(int(k) + 1) for k in complaint.where[1:2])])
        line = complaint.line(place, list(map(str, complaint.where[3:])))
        refuse_distance(line.removeprefix(place))
        raise InputError(line.replace(": type ", ": measure ")) from None
    for number, criterion in enumerate(found, 1):
        for name in criterion.named():
            if name not in schema.names:
                raise InputError(
                    f"{named}: criterion {number}: no column {name!r}. Check the spelling."
                )
        if isinstance(criterion, Counts) and criterion.ways > len(schema.names):
            raise InputError(f"{named}: criterion {number}: more ways than columns. Use fewer.")
    return found


@dataclass(frozen=True)
class Checked:
    """A criterion and its value; owner only.

    Attributes:
        criterion: what was measured.
        value: the result.
        limit: the largest value that is accepted.
        met: whether the value is accepted.
        where: cell, group, coefficient or rule with this value.
    """

    criterion: str
    value: float
    limit: float
    met: bool
    where: str


class AcceptCheck(Check):
    """Whether the criteria of the owner are met."""

    name, title, about = "criteria", "Acceptance criteria", "criteria"
    shown, first = "always", True
    rules = (
        Word("not met", "poor", lambda found: not all(each.met for each in found)),
        Word("met", "good"),
    )

    def measure(self, comparison: Comparison) -> tuple[Checked, ...] | None:
        found = []
        for each in comparison.accept:
            value, where = each.find(comparison)
            found.append(Checked(each.text, value, each.limit, value <= each.limit, where))
        return tuple(found) or None

    def judge(self, facts: Sequence[Checked] | None, evaluation: Any) -> Finding | None:
        if not facts:
            return None
        failed = [
            f"{each.criterion} ({significant(each.value)}, limit {significant(each.limit)}"
            f"{'; ' * bool(each.where)}{each.where})"
            for each in facts if not each.met
        ]  # fmt: skip
        amount = counted(len(facts), "criterion", "criteria")
        text = f"All {amount} of the owner are met."
        if failed:
            text = f"Not met, {len(failed)} of {amount}: {checks.named(failed)}."
        columns = (
            checks.Column("criterion", partial(short, longest=160)),
            checks.number("value", significant), checks.number("limit", significant),
            checks.Column(""), checks.Column("where", partial(short, longest=160)),
        )  # fmt: skip
        rows = [(c.criterion, c.value, c.limit, "met" if c.met else "NOT MET", c.where)
                for c in facts]  # fmt: skip
        caption = "Limits that were fixed before the table was made"
        figures = (checks.Table(caption, columns, rows, len(rows)),)
        return Finding(*self.word_for(facts), text, figures=figures)

    def as_json(self, facts: Sequence[Checked] | None) -> Mapping[str, Any]:
        return {self.name: facts and [asdict(each) for each in facts]}
