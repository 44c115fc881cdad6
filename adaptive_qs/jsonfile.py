"""Strict reading of JSON files, with error messages of one line.

Files from others (release bundles, statements of tables) are also bounded before they are parsed: a
few kilobytes can become gigabytes of Python objects. The bounds follow from the largest honest
release: a million marginals of five attributes are 6 million elements, and 8,000 rounds over
marginals of six attributes with their charges are half a million objects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_qs.arguments import check_path
from adaptive_qs.errors import InputError, reason

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


MOST_DIGITS = 1000
"""Maximum number of digits of a whole number in a file."""
MOST_TEXT_BYTES = 2**28
MOST_ELEMENTS = 2**23
"""Maximum number of values, as counted by the commas and brackets before them."""
MOST_OBJECTS = 2**20
_BYTES_PER_CHARACTER, _BYTES_PER_ELEMENT, _BYTES_PER_OBJECT = 4, 300, 1_500
"""Memory per character, value and object of JSON, with what is built from them (upper bounds)."""
_PIECE = 2**16

Claim = Callable[[int], None]
"""A function that is called with a number of bytes before they are used; raises if too many."""
_QUOTED = 60
"""Maximum number of characters that are quoted of a text."""


def as_object(content: Any) -> dict[str, Any]:
    """Return parsed JSON that is an object, and an empty object for anything else."""
    return dict(content) if isinstance(content, Mapping) else {}


def read_json(path: str | Path, refusal: type[InputError], claim: Claim | None = None) -> Any:
    """Parse a JSON file in UTF-8, refusing repeated keys and numbers that are not finite.

    ``refusal`` is raised if the file cannot be read or is not such JSON. ``claim`` reserves memory
    for a file from others, whose size is then bounded.
    """
    check_path("the file", path, refusal)
    try:
        if claim is None:
            text = Path(path).read_text(encoding="utf-8-sig")
        else:
            with open(path, "rb") as file:
                pieces = iter(partial(file.read, _PIECE), b"")
                text = bounded_text(pieces, claim).removeprefix("\ufeff")
        return parse_json(text)
    except OSError as error:
        problem = f"{reason(error, 'unreadable')}: check the path"
    except UnicodeDecodeError:
        problem = "not UTF-8 text: save the file as UTF-8"
    except json.JSONDecodeError as error:
        problem = f"not valid JSON (line {error.lineno}: {error.msg}): correct or replace it"
    except ValueError as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply: is it a file of this kind?"
    # Here, where no __context__ holds the text: it is private where a table came by mistake.
    raise refusal(f"{path}: {problem}")


def bounded_text(pieces: Iterable[bytes], claim: Claim) -> str:
    """Join the pieces of a text of JSON, after reserving the memory that parsing it takes.

    ValueError is raised if it is too long, has too many values, or is not UTF-8.
    """
    read: list[bytes] = []
    size = elements = objects = 0
    for piece in pieces:
        read.append(piece)
        size += len(piece)
        objects += piece.count(b"{")
        elements += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
        if size > MOST_TEXT_BYTES or elements > MOST_ELEMENTS or objects > MOST_OBJECTS:
            raise ValueError("has more values than any release: it is damaged, copy it again")
    claim(_BYTES_PER_CHARACTER * size + _BYTES_PER_ELEMENT * elements + _BYTES_PER_OBJECT * objects)
    return b"".join(read).decode()


def parse_json(text: str) -> Any:
    """Parse JSON that all parsers read in the same way.

    Raises:
        ValueError: If it is not JSON, repeats a key in an object, has a number that is not finite
            or has too many digits, or has a text with half of a surrogate pair.
        RecursionError: If it is nested too deeply.
    """
    content = json.loads(
        text, object_pairs_hook=_distinct, parse_int=_integer, parse_float=_finite,
        parse_constant=_no_constant,
    )  # fmt: skip
    if "\\ud" in text.lower():
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text has half of a surrogate pair: it is damaged") from None
    return content


class Complaint(NamedTuple):
    """An error that pydantic finds, with its name there and the text for people.

    ``where`` are the keys and positions that lead to it.
    """

    where: list[str | int]
    message: str

    def line(self, place: str, where: Sequence[str | int]) -> str:
        """Return one line: a place, the remaining keys, and the message."""
        keys = ".".join(map(_short, where))
        parts = (place, keys, self.message) if keys else (place, self.message)
        return " ".join(": ".join(parts).split())


def first_complaint(error: ValidationError) -> Complaint:
    """Return the most helpful error; it quotes only what the file says.

    An unknown key comes before a missing one, since it is often a misspelling of that.
    """

    def urgency(complaint: ErrorDetails) -> int:
        if complaint["loc"] == ("version",):
            return 0
        return _URGENCY.get(complaint["type"], 2)

    first = min(error.errors(include_url=False), key=urgency)
    # Pydantic also lists the variants of a union that it tried, such as "function-after[...]".
    where = [key for key in first["loc"] if isinstance(key, int) or "[" not in key]
    message = first["msg"].removeprefix("Value error, ")
    words = _WORDS.get(first["type"])
    if words:
        # A bound as people write it: 0 rather than 0.0.
        context = {
            key: f"{of:g}" if isinstance(of, float) and of.is_integer() else of
            for key, of in first.get("ctx", {}).items()
        }
        message = words.format(**context | {"tag": _short(context.get("tag"))})
        if first["type"] in _BOUNDS:
            message += f", not {_short(first['input'])}"
    return Complaint(where, message)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}... ({len(text):,} characters)"


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits. Use at most {MOST_DIGITS:,}.")
    return int(text)


_URGENCY = {"extra_forbidden": 1, "union_tag_invalid": 1, "missing": 3, "too_short": 4}
_BOUNDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"}
_WORDS = {
    "missing": "is required: add it",
    "extra_forbidden": "is not a known key: check the spelling or remove it",
    "union_tag_invalid": "type {tag} is unknown: use one of {expected_tags}",
    "union_tag_not_found": "has no type: add one",
    "literal_error": "must be {expected}",
    "string_type": "must be text: write it in quotes",
    "too_short": "must not be empty",
    "too_long": "is too long. Use at most {max_length}.",
    "string_too_long": "is too long. Use at most {max_length} characters.",
    "tuple_type": "must be a list in square brackets",
    "model_type": "must be an object in braces",
    "model_attributes_type": "must be an object in braces",
    "dict_type": "must be an object in braces",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "is too large a number. Use a smaller one.",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "date_parsing": "must be a date such as 2024-12-31",
    "date_from_datetime_parsing": "must be a date such as 2024-12-31",
    "datetime_parsing": "must be a time such as 2024-12-31T18:00:00",
    "datetime_from_date_parsing": "must be a time such as 2024-12-31T18:00:00",
}
"""Messages for the errors of pydantic, for writers of JSON."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} occurs twice: keep one")
    return result


def _finite(text: str) -> float:
    value = float(text)
    return _no_constant(_short(text)) if math.isinf(value) else value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON can hold. Use a finite one.")
