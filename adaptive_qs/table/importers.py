"""Schemas of other systems, converted: mbi, SDV, dpmm and dpsynth."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from adaptive_qs.errors import SchemaError
from adaptive_qs.jsonfile import read_json
from adaptive_qs.table.bins import NUMERIC_BINS, integer_bins
from adaptive_qs.table.schema import Schema, is_domain_sizes

Kind = Literal["auto", "mbi", "sdv", "dpmm", "dpsynth"]

Draft = dict[str, Any]
"""A column in our format without its name."""


def import_schema(path: str | Path, kind: Kind = "auto") -> Schema:
    """The schema that another system's description of a table amounts to.

    - mbi: `{"age": 85}`; codes 0 .. n-1.
    - SDV metadata (SINGLE_TABLE_V1, or V1 with one table). It has neither ranges nor values:
      they are read from the keys `min` and `max`, or `values`, added to the columns by hand.
      Identifiers and personal data (`id`, `text`, `pii`) are ignored.
    - dpmm: `{"age": {"lower": 17, "upper": 90}, "sex": {"categories": [...]}}`. Bounds that are
      both integers make an integer column.
    - dpsynth: attribute classes by name, as JSON or (with the extra `yaml`) YAML. Its
      out-of-domain value becomes the catch-all.

    Numeric columns without bins of their own get 32 of equal width, integer columns with more
    than 200 values get 100.

    Raises:
        SchemaError: the file is none of these, or lacks what the message asks for.
    """
    content = _read(path)
    if kind == "auto":
        kind = _kind(content, path)
    if kind == "mbi":
        return Schema.parse(content, str(path))
    columns = content
    if kind == "sdv" and isinstance(content, dict):
        tables = content.get("tables")
        if isinstance(tables, dict):
            if len(tables) != 1:
                raise SchemaError(f"{path}: describes {len(tables)} tables: keep one")
            (content,) = tables.values()
        columns = content.get("columns") if isinstance(content, dict) else None
    if not isinstance(columns, dict):
        raise SchemaError(f"{path}: has no columns: is it a {kind} file?")
    return _convert(columns, _CONVERTERS[kind], path)


def _convert(
    columns: Mapping[str, Any], converter: Callable[[Draft], Draft | None], path: str | Path
) -> Schema:
    drafts: dict[str, Draft | None] = {}
    lacking: list[str] = []
    for name, entry in columns.items():
        if not isinstance(entry, dict):
            raise SchemaError(f"{path}: column {name!r}: not an object: correct it")
        try:
            drafts[name] = converter(entry)
        except KeyError as error:
            lacking.append(f"{error.args[0]} to {name!r}")
        except (TypeError, ValueError, OverflowError):
            raise SchemaError(
                f"{path}: column {name!r}: a key has a value of another kind: correct it"
            ) from None
    if lacking:
        raise SchemaError(f"{path}: not enough is declared: add {', '.join(lacking)}")
    content = {
        "version": 1,
        "columns": [{"name": n, **draft} for n, draft in drafts.items() if draft is not None],
        "ignore": [name for name, draft in drafts.items() if draft is None],
    }
    return Schema.parse(content, str(path))


def _sdv(entry: Draft) -> Draft | None:
    match entry.get("sdtype"):
        case "boolean":
            return {"type": "boolean"}
        case "categorical":
            return {"type": "categorical", "values": _filled(entry, "values")}
        case "numerical":
            low, high = _need(entry, "min", "max")
            whole = "Int" in str(entry.get("computer_representation", ""))
            return _range(low, high, whole or None)
        case "datetime":
            low, high = _need(entry, "min", "max")
            written = entry.get("datetime_format")
            timed = written is None or any(mark in written for mark in ("%H", "%I", "%X"))
            given = {} if written is None else {"format": written}
            return {"type": "datetime" if timed else "date", "min": low, "max": high, **given}
        case _:
            return None


def _dpmm(entry: Draft) -> Draft:
    if "categories" in entry:
        values = [value for value in entry["categories"] if value is not None]
        missing = {"missing": [""]} if len(values) < len(entry["categories"]) else {}
        return {"type": "categorical", "values": values, **missing}
    low, high = _need(entry, "lower", "upper")
    return _range(low, high, None, entry.get("n_bins"))


def _dpsynth(entry: Draft) -> Draft | None:
    kind = entry.get("type", "")
    if kind == "CategoricalAttribute" or "possible_values" in entry:
        values = list(_filled(entry, "possible_values"))
        index = entry.get("out_of_domain_index", 0)
        known = type(index) is int and 0 <= index < len(values)
        catch_all = {"catch_all": values[index]} if known and type(values[0]) is not bool else {}
        return {"type": "categorical", "values": values, **catch_all}
    if kind == "FreeFormTextAttribute" or "max_tokens" in entry:
        return None
    if kind == "OpenSetCategoricalAttribute" or "default_value" in entry:
        values = list(_filled(entry, "public_possible_values"))
        catch_all = {"catch_all": entry.get("default_value", "<OOD>")}
        return {"type": "categorical", "values": values, **catch_all}
    low, high = _need(entry, "min_value", "max_value")
    draft = _range(low, high, entry.get("dtype") == "int")
    if entry.get("bin_edges") and draft["type"] == "numeric":
        edges = sorted({float(low), *map(float, entry["bin_edges"]), float(high)})
        draft = {"type": "numeric", "edges": edges}
    if entry.get("clip_to_range", True):
        return {**draft, "outside": "clip"}
    return {**draft, "missing": [""], "outside": "missing"}


_CONVERTERS: dict[str, Callable[[Draft], Draft | None]] = {
    "sdv": _sdv,
    "dpmm": _dpmm,
    "dpsynth": _dpsynth,
}


def _range(low: Any, high: Any, whole: bool | None, bins: Any = None) -> Draft:
    """An integer or numeric column; without `whole`, integer when both bounds are."""
    if whole is None:
        whole = type(low) is int and type(high) is int
    count = {"bins": bins} if type(bins) is int else {}
    if not whole:
        return {"type": "numeric", "min": low, "max": high, "bins": NUMERIC_BINS, **count}
    low, high = (int(x) if isinstance(x, float) and x.is_integer() else x for x in (low, high))
    if not count and type(low) is int and type(high) is int:
        count = integer_bins(low, high)
    return {"type": "integer", "min": low, "max": high, **count}


def _filled(entry: Draft, key: str) -> Any:
    if not entry.get(key):
        raise KeyError(f'"{key}"')
    return entry[key]


def _need(entry: Draft, low: str, high: str) -> tuple[Any, Any]:
    if entry.get(low) is None or entry.get(high) is None:
        raise KeyError(f'"{low}" and "{high}"')
    return entry[low], entry[high]


def _kind(content: Any, path: str | Path) -> Kind:
    if is_domain_sizes(content):
        return "mbi"
    if isinstance(content, dict) and (
        content.keys() & {"tables", "METADATA_SPEC_VERSION"}
        or isinstance(content.get("columns"), dict)
    ):
        return "sdv"
    entries = list(content.values()) if isinstance(content, dict) else []
    if entries and all(isinstance(entry, dict) for entry in entries):
        keys = set().union(*entries)
        if keys & {"lower", "upper", "categories"}:
            return "dpmm"
        if keys & {"possible_values", "min_value", "type"}:
            return "dpsynth"
    raise SchemaError(f"{path}: none of mbi, SDV, dpmm, dpsynth: name the kind or write a schema")


def _read(path: str | Path) -> Any:
    if Path(path).suffix.lower() not in (".yaml", ".yml"):
        return read_json(path, SchemaError)
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise SchemaError(
            f"{path}: YAML needs the package PyYAML: pip install adaptive-qs[yaml], or convert the "
            "file to JSON"
        ) from None
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        json.dumps(content, default=str)  # which aliases that lead in a circle cannot be
        return content
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError):
        raise SchemaError(f"{path}: not a readable YAML file: check the path and text") from None
