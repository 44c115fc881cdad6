"""Descriptions of the data by its owner, for the page of a release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from adaptive_qs.arguments import shown
from adaptive_qs.errors import InputError, reason
from adaptive_qs.jsonfile import read_json
from adaptive_qs.table.files import check_name, is_table_file
from adaptive_qs.table.schema import AboutKey


def resolve_about(given: Mapping[str, str] | str | Path) -> tuple[Mapping[str, str], str]:
    """Return a description of the data, given as such or as a file, and its name for messages."""
    match given:
        case Mapping():
            return given, "about"
        case str() | Path():
            return read_about(given), str(given)
    raise InputError(f"about is {shown(given)}: give a mapping or the path of a file")


def read_about(path: str | Path) -> dict[str, str]:
    """Return the description of the data in a file: JSON with the keys of ``about``, or Markdown.

    In Markdown the first line that begins with "#" is the title, lines such as "publisher: the
    city" give other keys, and the rest is the description, without marks of emphasis and code.

    Raises:
        InputError: If the file cannot be read, or is a table, whose rows would be published.
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
        emphasis = r"(?<![\w*`])(\*{1,3}|`)(?=\S)([^*`]+)(?<=\S)\1(?![\w*`])"
        found.setdefault("description", re.sub(emphasis, r"\2", description))
    return found
