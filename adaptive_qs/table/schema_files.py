"""Files about tables: schemas as JSON, and descriptions of the data by its owner."""

from __future__ import annotations

import contextlib
import re
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from pydantic import ValidationError

from adaptive_qs.arguments import as_integer, plain_json, shown
from adaptive_qs.errors import InputError, ResourceExceeded, SchemaError, reason
from adaptive_qs.jsonfile import Claim, as_object, first_complaint, read_json
from adaptive_qs.machine import memory_claims
from adaptive_qs.table.files import check_name, is_table_file

AboutKey = Literal["title", "publisher", "contact", "date", "licence", "description"]


def resolve_about(given: Mapping[str, str] | str | Path) -> tuple[Mapping[str, str], str]:
    """Return a description of the data, given as such or as a file, and its name for messages."""
    match given:
        case Mapping():
            return given, "about"
        case str() | Path():
            return read_about(given), str(given)
    raise InputError(f"about is {shown(given)}: give a mapping or the path of a file")


_EMPHASIS = re.compile(r"(?<![\w*`])(\*{1,3}|`)(?=\S)([^*`]+)(?<=\S)\1(?![\w*`])")
"""*Emphasis* and `code` in Markdown."""


def read_about(path: str | Path) -> dict[str, str]:
    """Return the description of the data in a file: JSON with the keys of ``about``, or Markdown.

    The first line of a Markdown file that begins with "#" is the title, lines such as "publisher:
    the city" give the other keys, and the rest is the description, as plain text without marks of
    emphasis and code.

    Raises:
        InputError: If the file cannot be read, is other JSON, or a table, whose rows would be
            published.
    """
    if is_table_file(path):
        raise InputError(f"{path}: is a table: give JSON or Markdown that describes it")
    check_name(file := Path(path))
    if file.suffix.lower() == ".json":
        content = read_json(file, InputError)
        if not isinstance(content, dict):
            raise InputError(f"{path}: is no JSON object: give {', '.join(get_args(AboutKey))}")
        return content
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}: check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no UTF-8 text: give JSON or Markdown") from None
    found: dict[str, str] = {}
    rest = []
    for line in lines:
        key, colon, text = line.partition(":")
        if line.startswith("#") and "title" not in found:
            found["title"] = line.lstrip("#").strip()
        elif colon and key.strip().lower() in get_args(AboutKey) and text.strip():
            found[key.strip().lower()] = text.strip()
        else:
            rest.append(line.strip())
    if description := " ".join(filter(None, rest)):
        found.setdefault("description", _EMPHASIS.sub(r"\2", description))
    return found


_FEW_BINS, _BYTES_PER_BIN = 2**16, 400
"""Number of bins that need no claim of memory, and the bytes of each of more."""


def is_domain_sizes(content: Any) -> bool:
    """Return whether parsed JSON is an mbi domain: attribute names with their positive sizes.

    A lone "version" is the beginning of a schema.
    """
    sizes = as_object(content)
    return (
        bool(sizes)
        and "columns" not in sizes
        and sizes.keys() != {"version"}
        and all((as_integer(size) or 0) > 0 for size in sizes.values())
    )


def claim_bins(content: Any, source: str, claim: Claim | None) -> None:
    """Reserve the memory of bins that are stated by their number, before they are formed."""
    stated = [as_object(each).get("bins") for each in as_object(content).get("columns") or ()]
    number = sum(bins for bins in map(as_integer, stated) if bins is not None)
    if number > _FEW_BINS:
        try:
            (claim or memory_claims())(_BYTES_PER_BIN * number)
        except ResourceExceeded as error:
            raise ResourceExceeded(f"{source}: with {number:,} bins it {error}") from None


def to_json_value(value: Any) -> Any:
    """Return a NumPy number or another value that JSON lacks as one that it has."""
    try:
        return plain_json(value)
    except TypeError:
        return str(value)


def raise_complaint(error: ValidationError, content: Any, source: str) -> NoReturn:
    """Raise the first complaint of pydantic as one line that names the column."""
    complaint = first_complaint(error)
    where = complaint.where
    place = source
    if len(where) > 1 and where[0] == "columns":
        index = int(where[1])
        name = as_object(content["columns"][index]).get("name")
        place += f": column {name!r}" if type(name) is str else f": column number {index + 1}"
        where = where[3:]
    elif len(where) > 1 and where[0] == "rules":
        place += f": rule number {int(where[1]) + 1}"
        where = where[3:]  # behind it, pydantic names what it tried to read the rule as
    raise SchemaError(complaint.line(place, where)) from None


SET_MEMBER = "tables.json"
"""Member of the release bundle of a set of tables that has their schema."""


def read_content(path: str | Path, max_memory: int | str | None) -> Any:
    """Return the parsed JSON of a schema file, or of the schema in a release bundle."""
    if is_table_file(path):
        raise SchemaError(
            f"{path}: is a table, not a schema: "
            f"{shlex.join(['adaptive-qs', 'schema', 'init', str(path)])} proposes one"
        )
    is_bundle = False
    with contextlib.suppress(OSError, ValueError):  # read_json explains them
        is_bundle = zipfile.is_zipfile(path)
    if not is_bundle:
        return read_json(path, SchemaError)
    from adaptive_qs.table.archive import open_archive

    with (
        contextlib.suppress(InputError),
        open_archive(path, "release", max_memory) as archive,
    ):
        if SET_MEMBER in archive.names:
            return as_object(archive.json(SET_MEMBER)).get("schema")
        return archive.json("schema.json")
    raise SchemaError(f"{path}: is a zip file, but no release bundle: name a schema")


def describes_set(content: Any) -> bool:
    """Return whether parsed JSON describes a set of tables."""
    content = as_object(content)
    return "columns" not in content and "tables" in content and not is_domain_sizes(content)
