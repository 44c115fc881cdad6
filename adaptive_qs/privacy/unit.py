"""The unit of privacy, and the cost of measurements of rows for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import ConfigDict, Field

from adaptive_qs.arguments import check_choice, positive_integer
from adaptive_qs.errors import InputError
from adaptive_qs.privacy import DEFAULT_NEIGHBOURS as DEFAULT_NEIGHBOURS
from adaptive_qs.privacy.events import Cost, E, GaussianEvent

# Code that measures is about single rows: the one door by which counts leave
# (:mod:`adaptive_qs.privacy.mechanisms`) takes events for a row, and charges and records them for
# the unit of its ledger: group² times the ρ and ``group`` times the δ. Proof: docs/proofs.md,
# section 11.


class Relation(NamedTuple):
    """Which tables are neighbours: those ``steps`` additions and removals of a unit apart."""

    steps: int
    verb: str


NEIGHBOURS: Mapping[str, Relation] = MappingProxyType(
    {DEFAULT_NEIGHBOURS: Relation(1, "add or remove"), "replace": Relation(2, "replace")}
)
"""The kinds of neighbouring tables, by the name of the option."""

MOST_ROWS = 2**20
"""Largest number of rows of one person: above it there is nothing but noise."""


@dataclass(frozen=True)
class SetMember:
    """A table of a set, of which one row of the root is protected with all rows below it.

    Attributes:
        tables: The names of all tables, root first.
        keys: The columns that relate the tables, one text for each key; a release has them in its
            schema.
    """

    tables: Annotated[tuple[str, ...], Field(min_length=2)]
    table: str
    keys: Annotated[tuple[str, ...], Field(exclude=True)] = field(default=(), compare=False)

    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def root(self) -> str:
        """The table of which one row is protected."""
        return self.tables[0]

    @property
    def others(self) -> str:
        """The other tables as text, in the same order for every schema."""
        *first, last = sorted(self.tables[1:])
        return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Unit:
    """The unit of privacy: the difference between two neighbouring tables.

    Attributes:
        person: The name of the person column; None if each row is one unit.
        rows: Maximum number of rows per person that count.
        related: The table of a set whose rows are measured; None for one table. ``rows`` is then
            the maximum number of its rows below one row of the root.
    """

    person: Annotated[str, Field(min_length=1)] | None = None
    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1
    neighbours: Literal["add-remove", "replace"] = DEFAULT_NEIGHBOURS
    related: SetMember | None = None

    __pydantic_config__ = ConfigDict(extra="forbid")

    @staticmethod
    def of(person: str | None, rows_per_person: Any, neighbours: Any) -> Unit:
        """Return the unit that a schema and the options of a run name.

        InputError is raised if a value is invalid, or if only one of a person column and a number
        of rows is named.
        """
        check_choice("neighbours", neighbours, NEIGHBOURS)
        if (person is None) != (rows_per_person is None):
            raise InputError(
                "--rows-per-person needs a person column, and the schema names none. Add "
                '"person": COLUMN to the schema, or remove --rows-per-person.'
                if person is None
                else f"The schema names the person column {person!r}. Set --rows-per-person (in "
                "Python rows_per_person=) to the maximum number of rows per person, a public "
                "number."
            )
        kind = cast(Literal["add-remove", "replace"], neighbours)
        rows = 1 if person is None else positive_integer("rows-per-person", rows_per_person)
        if rows > MOST_ROWS:
            raise InputError(f"rows-per-person is {rows:,}. Use {MOST_ROWS:,} at most.")
        return Unit(person, rows, kind)

    def __post_init__(self) -> None:
        """Raise ValueError for parts that contradict each other."""
        if (member := self.related) is not None:
            if self.person is not None:
                raise ValueError("a person column in a set of tables")
            if member.table not in member.tables or (self.rows > 1 and member.table == member.root):
                raise ValueError("no table of the set, or several rows for one of the root")
        elif self.person is None and self.rows > 1:
            raise ValueError("several rows per person without a person column")

    @property
    def group(self) -> int:
        """Maximum number of rows by which the measured tables of neighbours differ."""
        return self.rows * NEIGHBOURS[self.neighbours].steps

    @property
    def noun(self) -> str:
        """The unit as a noun."""
        if self.related is not None:
            return f"row of {self.related.root}"
        return "row" if self.person is None else "person"

    def describe_guess(self, advantage: float) -> str:
        """Return what an attack with this advantage at most can find out, without a full stop."""
        what = f"whether a given {self.noun} is in the table"
        if self.replaced:
            what = f"which of two {self.noun}s is in the table"
        share = math.ceil(500 * (1 + advantage)) / 10
        return f"a guess {what} is right with a probability of at most {share:g} % instead of 50 %"

    @property
    def protected(self) -> str:
        """The unit as text, the same for any number of rows that count."""
        if self.related is not None:
            return f"one {self.noun} with all rows of {self.related.others} below it"
        if self.person is None:
            return "one row"
        return f"one person: all rows with the same {self.person!r}"

    @property
    def identity(self) -> str:
        """The unit and the keys that relate rows; only costs of the same identity add up."""
        keys = () if self.related is None else self.related.keys
        return f"{self.protected}, related by {' and '.join(keys)}" if keys else self.protected

    @property
    def name(self) -> str:
        """The unit as text, with the number of rows that count."""
        if self.related is not None and self.related.table != self.related.root:
            rows = f"row of {self.related.table} counts"
            rows = rows if self.rows == 1 else f"rows of {self.related.table} count"
            return f"{self.protected}, of which at most {self.rows:,} {rows}"
        if self.person is None:
            return self.protected
        return f"{self.protected}, of which at most {self.rows:,} count{'s' * (self.rows == 1)}"

    @property
    def relation(self) -> str:
        """The neighbouring tables as text."""
        whole = "" if self.person is None else " with all rows"
        whole = whole if self.related is None else " with all rows below it"
        return f"{NEIGHBOURS[self.neighbours].verb} one {self.noun}{whole}"

    @property
    def replaced(self) -> bool:
        """Whether one unit replaces another in neighbouring tables."""
        return self.neighbours == "replace"

    def priced(self, event: E) -> E:
        """Return the event for the unit, given the event for one row."""
        return event.of_group(self.group)

    def priced_counts(self, event: GaussianEvent, squared_diameter: int | None) -> GaussianEvent:
        """Return the event of counts for the unit, given that for one row that is added or removed.

        The squared diameter is the largest squared L2 distance between the contributions of two
        rows, not less than the squared sensitivity, as a person may have fewer rows than another;
        None if unknown. It lowers the cost of replacing a unit.
        """
        if squared_diameter is None or not self.replaced:
            return self.priced(event)
        least, most = event.squared_sensitivity, 4 * event.squared_sensitivity
        if not least <= squared_diameter <= most:
            raise ValueError("two rows cannot be so far apart, or so near")
        return replace(event, squared_sensitivity=squared_diameter).of_group(self.rows)

    def for_rows(self, cost: Cost) -> Cost:
        """Return the largest cost for one row that costs the unit at most ``cost``."""
        return Cost(cost.rho_units // self.group**2, cost.delta_units // self.group)


ROWS = Unit()
"""One row, added or removed."""
