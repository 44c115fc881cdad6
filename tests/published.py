"""The JSON Schemas of schema and workload files; each is checked and compiled once."""

import json
from functools import cache
from typing import Any

import jsonschema

from adaptive_qs.table.columns import COLUMN_TYPES
from scripts.make_reference import render


def _compiled(text: str) -> jsonschema.Draft202012Validator:
    content = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


@cache
def _of_schemas(*types: type) -> jsonschema.Draft202012Validator:
    """That of the types of columns that are registered, which a test may change."""
    return _compiled(render("schema"))


@cache
def _of_workloads() -> jsonschema.Draft202012Validator:
    return _compiled(render("workload"))


def validate_schema(content: Any) -> None:
    """Raise `jsonschema.ValidationError` for what is no schema file."""
    _of_schemas(*COLUMN_TYPES.values()).validate(content)


def validate_workload(content: Any) -> None:
    """The same for workload files."""
    _of_workloads().validate(content)
