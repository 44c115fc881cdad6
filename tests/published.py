"""The JSON Schemas of schema and workload files; each is checked and compiled once."""

import json
from functools import cache
from typing import Any

import jsonschema

from adaptive_qs.table import schema
from adaptive_qs.workload import file


@cache
def _validator(text: str) -> jsonschema.Draft202012Validator:
    content = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


def validate_schema(content: Any) -> None:
    """Raise `jsonschema.ValidationError` for what is no schema file."""
    _validator(schema.render()).validate(content)


def validate_workload(content: Any) -> None:
    """The same for workload files."""
    _validator(file.render()).validate(content)
