"""Columns that are never measured and come back with new cells: keys, and cells of a list."""

from __future__ import annotations  # which leaves PyArrow unimported

import math
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StrictBool, StrictFloat, StrictInt, model_validator

from adaptive_qs.table.columns.base import Reviewed, Text, np, pa
from adaptive_qs.table.text import Formulas, escapes

_ALPHABETS = {
    "9": "0123456789", "A": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "a": "abcdefghijklmnopqrstuvwxyz",
    "f": "0123456789abcdef", "F": "0123456789ABCDEF",
}  # fmt: skip
LONGEST_PATTERN, LONGEST_VALUE = 200, 1000
"""Most characters of a key's pattern and of a cell of a list."""
_Whole = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
_Finite = Annotated[StrictFloat, Field(allow_inf_nan=False)]
_Short = Annotated[Text, Field(max_length=LONGEST_VALUE)]
_PLACES = re.compile(r"\{([9Aaf]*|[9AaF]*)\}")


class GeneratedColumn(Reviewed):
    """A column of the table that a synthetic table has again, with cells that tell nothing.

    A key has a new, distinct cell in every row. A filled column has cells of the list, drawn
    evenly; empty cells without a list.
    """

    name: Annotated[Text, Field(min_length=1)]
    """Name of the column in the data."""
    type: Literal["key", "filled"]
    place: Annotated[int, Field(ge=0, lt=2**31)]
    """Its place among all columns of a synthetic table, from 0 on."""
    pattern: Annotated[Text, Field(max_length=LONGEST_PATTERN)] = "{}"
    """How a key is written: text, and in braces a 9 for each digit, A or a for each letter, f or F
    for each hexadecimal digit. Empty braces count from 1 on. {} and 20{9999} make integers."""
    values: tuple[_Short | StrictBool | _Whole | _Finite, ...] = ()
    """The cells of a filled column, all of one type."""
    description: str = ""
    """Free text for people; not part of the fingerprint."""

    missing: ClassVar[tuple[str, ...]] = ("",)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type == "key" and (self.values or not _PLACES.search(self.pattern)):
            raise ValueError('a key has no values, and a pattern with braces such as "P-{9999}"')
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("the values are of several types: quote all of them or none")
        return self

    @property
    def shown(self) -> str:
        """The reasons why it is not measured, and its cells, which can show what rows have."""
        made = ", ".join(map(str, self.values)) or "empty"
        if self.type == "key":
            made = "1, 2, 3 ..." if self.pattern == "{}" else f"keys such as {self.pattern}"
        return f"{'; '.join(self.why)} (comes back as {made})".strip().replace("as empty", "empty")

    @cached_property
    def escapes(self) -> dict[str, str]:
        """Texts that a spreadsheet program would run, and their escaped forms in CSV."""
        return escapes([value for value in self.values if isinstance(value, str)])

    def found_values(self, proposed: bool) -> frozenset[str]:
        """Return texts that were taken from the rows, if the column is as ``proposed``."""
        return frozenset(self.escapes) if proposed else frozenset()

    def escapes_keys(self, formulas: Formulas, proposed: bool) -> bool:
        """Return whether the column is keys whose text CSV escapes."""
        escaping = formulas == "escape" or (formulas != "keep" and proposed)
        return escaping and self.type == "key" and self.pattern != "{}"

    def csv_texts(self, values: pa.Array) -> pa.Array:
        """Return values as CSV has them."""
        return values.cast(pa.string())

    def cells(self, start: int, rows: int, seed: Sequence[int]) -> pa.Array:
        """Return the cells of some rows, of which the first is row ``start``."""
        if self.type == "filled":
            if not self.values:
                return pa.nulls(rows, pa.string())
            drawn = np.random.default_rng([*seed, self.place]).integers(len(self.values), size=rows)
            return pa.array(self.values).take(pa.array(drawn))
        if self.pattern == "{}":
            return pa.array(np.arange(start, start + rows) + 1)
        keys = pa.array([self._key(k) for k in range(start, start + rows)], pa.string())
        return keys.cast(pa.int64()) if is_number(self.pattern) else keys

    def _key(self, number: int) -> str:
        """Return the key of a row. Digits count up; letters follow no visible order."""
        literals, places = _PLACES.split(self.pattern)[::2], _PLACES.findall(self.pattern)
        alphabets = [_ALPHABETS[each] for place in places for each in place]
        total = math.prod(map(len, alphabets))
        counts = all(len(alphabet) == 10 for alphabet in alphabets)
        code = number + 1
        if not counts:  # multiplied by about total / golden ratio, which has no factor in common
            step = round(total / 1.618033988749895) | 1
            while math.gcd(step, total) > 1:
                step += 2
            code = code * step
        beyond, code = divmod(code, total) if counts else ((number + 1) // total, code % total)
        drawn = []
        for alphabet in reversed(alphabets):
            code, digit = divmod(code, len(alphabet))
            drawn.append(alphabet[digit])
        rest = iter(reversed(drawn))
        filled = ["".join(next(rest) for _ in place) for place in places]
        if "" in filled or beyond:  # counted behind the others
            last = max((k for k, place in enumerate(places) if not place), default=len(filled) - 1)
            filled[last] = f"{number + 1}" if not places[last] else f"{beyond}{filled[last]}"
        return "".join(part for pair in zip(literals, [*filled, ""]) for part in pair)


def is_number(pattern: str) -> bool:
    """Return whether the keys of a pattern are integers."""
    return re.fullmatch(r"\{\}|[1-9][0-9]{0,7}\{9{1,9}\}", pattern) is not None


def key_pattern(values: Sequence[str]) -> str:
    """Return the pattern that all of some different texts have; "" without one."""
    if len({*map(len, values)}) == 1:
        hexadecimal = [value for value in values if re.fullmatch(r"[0-9a-fA-F{}-]{20,}", value)]
        if len(hexadecimal) == len(values):
            letter = "F" if any(re.search("[A-F]", value) for value in values) else "f"
            return re.sub(r"[0-9a-fA-F]+", lambda m: "{" + letter * len(m[0]) + "}", values[0])
        signs = "".join(map(_common_sign, zip(*values)))
        if "?" not in signs and re.search("[\x00]", signs):
            return re.sub("\x00([9Aa])", r"{\1}", signs).replace("}{", "")
    ends = [re.fullmatch(r"(\D*)[0-9]+(\D*)", value) for value in values]
    found = {(end[1], end[2]) if end else None for end in ends}
    (only,) = found if len(found) == 1 else (None,)
    return f"{only[0]}{{}}{only[1]}" if only and not re.search("[{}]", "".join(only)) else ""


def _common_sign(characters: Sequence[str]) -> str:
    """Return what characters at one place are: the same, marked digits or letters, or "?"."""
    distinct = set(characters)
    if len(distinct) == 1:
        return next(iter(distinct)) if not distinct & {*"{}?\x00"} else "?"
    for kind, alphabet in list(_ALPHABETS.items())[:3]:
        if distinct <= set(alphabet):
            return f"\x00{kind}"
    return "?"


def with_generated(
    page: pa.Table, columns: Sequence[GeneratedColumn], start: int, seed: Sequence[int]
) -> pa.Table:
    """Return a page of a synthetic table, of which the first is row ``start``, with columns."""
    names: list[str] = [*page.column_names]
    cells: list[Any] = [*page.columns]
    for column in columns:
        names.insert(column.place, column.name)
        cells.insert(column.place, column.cells(start, len(page), seed))
    return pa.table(cells, names=names)
