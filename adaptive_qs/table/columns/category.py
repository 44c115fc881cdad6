"""Columns with listed values: categorical and boolean, and texts whose values a run learns."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StrictBool, StrictInt

from adaptive_qs.table.columns import base
from adaptive_qs.table.columns.base import binning, cells, np, pa, pc, spellings
from adaptive_qs.table.text import FALSE_WORDS, TRUE_WORDS, read_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adaptive_qs.table.columns.base import Codes
    from adaptive_qs.table.profile import Profile

Integer64 = Annotated[StrictInt, Field(gt=-(10**18), lt=10**18)]

MAX_EXACT = 2**53
"""Least integer that is an identifier."""


class CategoricalColumn(base.ColumnBase):
    """A column whose values are listed, all strings, all integers or all booleans, or learnt.

    Of text, a run can learn the frequent values from the rows; all others get the catch-all label.
    """

    type: Literal["categorical"]
    values: Annotated[tuple[base.Text | StrictBool | Integer64, ...], Field(min_length=1)] = ()
    """The values, in code order."""
    private_values: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """The largest number of values that a run learns from the rows and pays for. The catch_all, a
    text, takes every other value, blank cells too."""
    ordered: bool = False
    """Whether the order of the values means something (for prefix and range queries)."""
    catch_all: base.Text | Integer64 | None = None
    """Label that takes every value not listed; it may be one of the listed values."""
    groups: Mapping[base.Text, tuple[base.Text | StrictBool | Integer64, ...]] = Field(
        default_factory=dict
    )
    """Values that belong together, by the name of their group; each value is in one. Marginals may
    be measured over these groups."""
    learnt: tuple[Literal["values"]] | None = None
    """What was learnt from private rows and paid for, as the program notes it."""

    @property
    def topics(self) -> tuple[base.Topic, ...]:
        order: tuple[base.Topic, ...] = ("order",) if self.ordered else ()
        return ("values", *order, *super().topics)

    @property
    def is_unlearnt(self) -> bool:
        return self.private_values is not None

    discovers = is_unlearnt

    @property
    def open_keys(self) -> tuple[str, ...]:
        return ("private_values",) if self.is_unlearnt else ()

    @property
    def probe(self) -> Self:
        return self._with_values((), None) if self.is_unlearnt else self

    def resolved(self, values: Sequence[str]) -> Self:
        """Return the column with these public values; the catch-all alone if there are none."""
        return self._with_values(values, ("values",))

    def stand_in(self) -> Self:
        """Return a column with more values than can be kept, if that is possible."""
        if self.private_values is None:
            return self
        values = [f"value {k}" for k in range(min(self.private_values + 2, 8))]
        return self.resolved([v for v in values if v not in self.missing])

    def _with_values(self, values: Sequence[str], learnt: tuple[Literal["values"]] | None) -> Self:
        content = self.model_dump(exclude={"private_values"}, exclude_defaults=True)
        listed = tuple(values) or (self.catch_all,)
        return type(self)(**content | {"values": listed, "learnt": learnt})

    @property
    def num_values(self) -> int:
        return self.private_values or len(self.values)

    @cached_property
    def labels(self) -> tuple[str | int, ...]:
        """The listed values, followed by the catch-all label if it is not one of them."""
        if self.catch_all is None or self.catch_all in self.values:
            return self.values
        return (*self.values, self.catch_all)

    @property
    def listed(self) -> tuple[str | int, ...] | None:
        return self.labels if self.values else None

    @property
    def limits(self) -> tuple[int, int] | None:
        numbers = () if self._lists_texts else tuple(map(int, self.labels))
        return (min(numbers), max(numbers)) if numbers else None

    @property
    def kind(self) -> Hashable:
        return "numbers" if self._lists_integers else self.values or None

    @property
    def scale(self) -> Hashable:
        return ("categorical", self.values) if self.ordered else None

    @property
    def ranked(self) -> bool:
        return self.ordered or self._lists_integers

    @property
    def _lists_texts(self) -> bool:
        return type(self.labels[0]) is str

    @property
    def _lists_booleans(self) -> bool:
        return type(self.labels[0]) is bool

    @property
    def _lists_integers(self) -> bool:
        return bool(self.values) and type(self.values[0]) is int

    def ends(self, codes: Codes) -> tuple[NDArray[Any], NDArray[Any]]:
        if self._lists_integers:
            codes = np.array(self.values, dtype=np.int64)[codes]
        return codes, codes

    def read_amount(self, text: str) -> float | None:
        value = read_integer(text) if self._lists_integers else None
        return super().read_amount(text) if value is None else float(value)

    @property
    def texts(self) -> tuple[str, ...]:
        return (*(map(str, self.labels) if self._lists_texts else ()), *self.missing)

    @property
    def catch_all_code(self) -> int | None:
        if self.catch_all is None:
            return None
        return self.private_values or self.labels.index(self.catch_all)

    def declares(self, text: str) -> bool:
        if self._lists_booleans:
            return text.lower() in TRUE_WORDS | FALSE_WORDS
        return (read_integer(text) if self._lists_integers else text) in self.labels

    def _check_values(self) -> None:
        if bool(self.values) == self.is_unlearnt:
            raise ValueError("declare either values, or private_values to learn them")
        if self.is_unlearnt:
            if type(self.catch_all) is not str or not self.catch_all:
                raise ValueError("private_values need a catch_all that is a text: add one")
            if self.ordered or self.groups or self.learnt:
                raise ValueError("private_values cannot have ordered, groups or learnt: remove it")
            return
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("the values are of several types: quote all of them or none")
        base.refuse_duplicates(self.values)
        if self.catch_all is not None and type(self.catch_all) is not type(self.values[0]):
            raise ValueError(
                f"catch_all {self.catch_all!r} is not of the type of the values. Change it."
            )
        if self.groups:
            self._check_groups()

    def _check_groups(self) -> None:
        grouped = tuple(value for values in self.groups.values() for value in values)
        for value in grouped:
            if value not in self.labels:
                raise ValueError(f"groups name {value!r}, which is no value. Check the spelling.")
        base.refuse_duplicates(grouped)
        for value in self.values:
            if value not in grouped:
                raise ValueError(f"value {value!r} is in no group. Add it to one.")

    @property
    def declared_groups(self) -> tuple[int, ...] | None:
        """The declared groups; missing values, and an ungrouped catch-all, have their own."""
        if not self.groups:
            return None
        group = {value: k for k, values in enumerate(self.groups.values()) for value in values}
        beyond = range(len(self.groups), len(self.groups) + self.size)
        own = (group.get(label, new) for label, new in zip(self.labels, beyond))
        return (*own, *beyond[len(self.labels) : self.size])

    def found_values(self, proposed: bool) -> frozenset[str]:
        if not self._lists_texts or not (self.learnt or proposed):
            return frozenset()
        return frozenset(map(str, self.values)) - {self.catch_all}

    def advice(self) -> list[str]:
        advice = super().advice()
        folded: dict[str, str] = {}
        for value in map(str, self.values if self._lists_texts else ()):
            other = folded.setdefault(value.casefold(), value)
            if other != value:
                advice.append(f"has values that differ in case only: {other!r} and {value!r}")
        if self._lists_integers and self.ordered and [*self.values] != sorted(self.values):
            advice.append("is ordered but its integers do not ascend: sort them")
        return advice

    @property
    def summary(self) -> str:
        """All values, or the first ones and the last."""
        if self.is_unlearnt:
            return base.TO_BE_LEARNT
        most = 64
        shown = [v if len(v) <= 32 else f"{v[:32]}..." for v in map(str, self.labels)]
        kept, last = shown[:-1], shown[-1:]
        if len(", ".join(shown)) > most:
            last = ["...", *last]
        while len(kept) > 1 and len(", ".join([*kept, *last])) > most:
            kept.pop()
        return ", ".join([*kept, *last])

    def read(self, values: pa.Array) -> Codes:
        labels = cells.to_arrow(self.labels)
        readable: Any = True
        if pa.types.is_string(labels.type):
            looked_up = cells.as_text(values)
            if pa.types.is_boolean(values.type) and "True" in self.labels:
                looked_up = pc.utf8_capitalize(looked_up)  # as Python and pandas write booleans
        else:
            boolean = pa.types.is_boolean(labels.type)
            numbers, readable = (cells.as_booleans if boolean else cells.as_integers)(values)
            looked_up, labels = pa.array(numbers), labels.cast(pa.int64())
        codes = pc.index_in(looked_up, value_set=labels).cast(pa.int64())
        codes = cells.from_arrow(codes.fill_null(cells.to_arrow(np.array([base.OUTSIDE]))[0]))
        return np.where(readable, codes, base.UNREADABLE)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        return cells.to_arrow(self.labels).take(cells.to_arrow(codes))

    def value_labels(self) -> list[str]:
        """Return the values and the catch-all, booleans as in JSON."""
        labels = map(str, self.labels)
        return [label.lower() for label in labels] if self._lists_booleans else [*labels]

    def explain_refusal(self, refusal: int) -> str:
        if refusal == base.EMPTY:
            return super().explain_refusal(refusal)
        return (
            "has a value that is not declared: add it to values, declare it as a missing marker, "
            "or declare a catch_all"
        )

    @classmethod
    def draft(cls, name: str, profile: Profile) -> base.Draft | None:
        """Return a draft of labels: few texts, or few integers scattered over a wide range."""
        if not profile.numeric:
            return None if profile.dated else cls._draft_of_texts(profile)
        rows, distinct = profile.filled, len(profile.points)
        if not profile.spelling.plain:  # which only numbers have
            return None
        # Up to 10 scattered integers are labels, and more if each has five rows.
        few = binning.codes_for(rows) if rows >= 5 * distinct else 10
        exact = max(abs(profile.low), abs(profile.high)) < MAX_EXACT
        scattered = profile.high - profile.low + 1 > 5 * distinct
        if not (profile.integers and exact and distinct <= few and scattered):
            return None
        values = profile.points.astype(int).tolist()
        return base.Draft({"type": "categorical", "values": values, "ordered": True})

    @classmethod
    def _draft_of_texts(cls, profile: Profile) -> base.Draft:
        """Return labels, or why the texts are none."""
        values = profile.values
        ordered = spellings.in_natural_order(values)
        labels: dict[str, Any] = {"type": "categorical", "values": values}
        if ordered is not None:
            labels |= {"values": ordered, "ordered": True}
        most, most_labels = binning.codes_for(profile.filled), 1_000
        problem = spellings.numbers_spelled(values)
        if not problem and (problem := spellings.durations_spelled(values)):
            most = binning.periods_for(profile.filled)
        if problem and len(values) <= most:
            return base.Draft(labels, f"taken as categories, but {problem}")
        if not problem and len(values) > most and ordered is None and not profile.zero_filled:
            problem = spellings.mostly_spelled(values)
        if not problem:
            all_different = not profile.too_many and len(values) == profile.filled > 1
            problem = spellings.keys_spelled(values, all_different)
        if not problem and len(values) >= max(20, 0.95 * profile.filled):
            problem = "an identifier or free text: nearly every value is different"
        if not problem and (profile.too_many or len(values) > most_labels):
            kind = "codes with leading zeros" if profile.zero_filled else "free text"
            problem = f"{kind}: more than {most_labels} values"
        note = "digits with leading zeros are taken as text: are they codes?"
        return (
            base.Draft(None, problem) if problem else base.Draft(labels, note * profile.zero_filled)
        )

    cell_types: ClassVar[tuple[base.CellType, ...]] = ("digits", "true or false")

    def cell_of_other_type(self) -> str | None:
        """Return a boolean, or an integer where booleans are listed."""
        if self.catch_all is None:
            return None
        return "1" if {"true", "false"} & {str(value) for value in self.values} else "true"


def listed_column(name: str, values: Sequence[str]) -> base.ColumnBase:
    """Return a column with these values."""
    return CategoricalColumn(name=name, type="categorical", values=tuple(values))


def identifier_column(name: str) -> base.ColumnBase:
    """Return a column whose cells differ as their texts do, and that is never measured."""
    content = {"name": name, "type": "categorical", "private_values": 1, "catch_all": "-"}
    return CategoricalColumn.model_validate(content)


class BooleanColumn(base.ColumnBase):
    """False is code 0 and true is code 1; cells are true/false, t/f, yes/no, y/n, 1/0."""

    type: Literal["boolean"]
    ordered: bool = False
    """Whether false < true means something (for prefix and range queries)."""
    outside: Literal["refuse", "missing"] = "refuse"
    """What happens to a cell that is no boolean."""
    words: tuple[base.Text, base.Text] = ("false", "true")
    """How CSV has false and true; other words are read as well."""

    num_values: ClassVar[int] = 2
    listed: ClassVar[tuple[bool, bool]] = (False, True)
    limits: ClassVar[tuple[int, int]] = (0, 1)
    kind: ClassVar[Hashable] = "booleans"
    summary: ClassVar[str] = "false, true"
    cell_types: ClassVar[tuple[base.CellType, ...]] = ("boolean",)

    def declares(self, text: str) -> bool:
        return text.lower() in TRUE_WORDS | FALSE_WORDS

    def read(self, values: pa.Array) -> Codes:
        codes, readable = cells.as_booleans(values)
        return np.where(readable, codes, base.UNREADABLE)

    def draw(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        return pa.array(codes == 1)

    def _check_values(self) -> None:
        if self.words[0].lower() not in FALSE_WORDS or self.words[1].lower() not in TRUE_WORDS:
            raise ValueError("words are not read as false and true: see the guide to schemas")

    def csv_texts(self, values: pa.Array) -> pa.Array:
        return pc.if_else(values, *cells.to_arrow(self.words[::-1]))

    def value_labels(self) -> list[str]:
        return ["false", "true"]

    def read_amount(self, text: str) -> float | None:
        word = text.lower()
        return float(word in TRUE_WORDS) if word in TRUE_WORDS | FALSE_WORDS else None

    @classmethod
    def draft(cls, name: str, profile: Profile) -> base.Draft | None:
        """Return a draft if the cells are "true" and "false", in any case."""
        if not profile.truth:
            return None
        by_word = {value.lower(): value for value in profile.values}
        like = next(iter(by_word.values()))
        case = str.upper if like.isupper() else str.title if like.istitle() else str
        words = [by_word.get(word, case(word)) for word in ("false", "true")]
        spelled = {} if words == ["false", "true"] else {"words": words}
        return base.Draft({"type": "boolean", **spelled})
