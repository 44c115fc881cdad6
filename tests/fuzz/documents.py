"""JSON documents that are nearly schemas, workloads, or descriptions of other systems."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

from .tables import DOCUMENT, edited

SCHEMAS: list[Any] = [
    DOCUMENT,
    {"age": 85, "sex": 2},
    {
        "version": 1,
        "description": "public",
        "columns": [
            {"name": "income", "type": "integer", "min": 0, "max": 99, "outside": "clip",
             "bin_starts": [0, 1, 50]},
            {"name": "weight", "type": "numeric", "min": 0, "max": 9, "bins": 5, "decimals": 1},
            {"name": "city", "type": "categorical", "values": ["B", "U"], "catch_all": "else"},
            {"name": "grade", "type": "categorical", "values": [1, 2, 3], "ordered": True},
            {"name": "member", "type": "boolean", "missing": ["?", ""]},
        ],
        "ignore": ["id"],
    },
]  # fmt: skip
OTHERS: list[Any] = [
    {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "columns": {
        "a": {"sdtype": "categorical", "values": ["x", "y"]}, "id": {"sdtype": "id"},
        "n": {"sdtype": "numerical", "min": 0, "max": 9, "computer_representation": "Int64"},
        "d": {"sdtype": "datetime", "min": "2020-01-01", "max": "2020-02-01",
              "datetime_format": "%Y-%m-%d"}}},
    {"tables": {"t": {"columns": {"f": {"sdtype": "boolean"}}}}},
    {"age": {"lower": 17, "upper": 90, "n_bins": 5}, "sex": {"categories": ["F", "M", None]}},
    {"age": {"type": "NumericalAttribute", "min_value": 0, "max_value": 9, "dtype": "int"},
     "w": {"min_value": 0, "max_value": 9.5, "bin_edges": [1, 2], "clip_to_range": False},
     "c": {"possible_values": ["x", "y"], "out_of_domain_index": 1},
     "o": {"public_possible_values": ["x"], "default_value": "z"}, "t": {"max_tokens": 5}},
]  # fmt: skip
WORKLOADS: list[Any] = [
    {"version": 1, "parts": [{"ways": [1, 2]}, {"attributes": [["cat", "int"]], "weight": 2.5}]},
    {"version": 1, "parts": [
        {"ways": [1], "queries": "range"},
        {"attributes": [["int", "num"]], "queries": {"int": "prefix", "num": "marginal"}},
        {"attributes": [["int", "code"]], "queries": "affine"},
        {"attributes": [["cat"]], "queries": {"family": "random", "p": 0.4, "count": 3, "seed": 1}},
        {"attributes": [["cat"]], "queries": {"family": "custom", "matrix": "m.csv"}},
        {"attributes": [["flag", "cat"]], "queries": {"flag": {"family": "random"}}}]},
]  # fmt: skip

_WORDS = [
    "a", "b", "cat", "int", "name", "type", "values", "min", "max", "bins", "edges", "missing",
    "ways", "attributes", "queries", "weight", "family", "random", "custom", "prefix", "hybrid",
    "integer", "numeric", "date", "circular", "absdiff", "2020-01-01", "%d/%d", "%Y", "%", "",
    " x ", "\0", "\ud800", "\u00e9", "day", "week", "clip", "columns", "version", "m.npy",
    "m.csv", "../m.csv",
]  # fmt: skip
_NUMBERS = [
    0, 1, -1, 2, 3, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**53, 10**18 - 1, 10**18, 2**63,
    2**64, 10**40, 10**4299, float("nan"), float("inf"),
]  # fmt: skip
scalars = st.sampled_from([None, True, False, *_NUMBERS, *_WORDS]) | st.integers(-5, 40)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=3)
    ),
    max_leaves=6,
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container inside, with each of its keys or positions."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, one in inner if isinstance(value, dict | list) else ():
        found.append((value, key))
        found += _places(one) if isinstance(one, dict | list) else []
    return found


@st.composite
def mutated(draw: st.DrawFn, documents: list[Any]) -> Any:
    """One of the documents after up to three structural changes."""
    root = [copy.deepcopy(draw(st.sampled_from(documents)))]
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3]))):
        places = _places(root)
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "replace", "delete", "copy", "rename", "add"])):
            case "replace":
                holder[key] = draw(junk)
            case "delete" if holder is not root:
                del holder[key]
            case "copy":
                other, name = draw(st.sampled_from(places))
                holder[key] = copy.deepcopy(other[name])
            case "rename" if isinstance(holder, dict):
                holder[draw(st.sampled_from(_WORDS))] = holder.pop(key)
            case "add" if isinstance(holder, list) and holder is not root:
                holder.insert(key, draw(junk))
    return root[0]


@st.composite
def json_files(draw: st.DrawFn, documents: list[Any]) -> bytes:
    """A mutated document as the bytes of a file, some of them edited."""
    content = json.dumps(draw(mutated(documents))).encode()
    return draw(edited(content, most=2)) if draw(st.integers(0, 4)) == 0 else content
