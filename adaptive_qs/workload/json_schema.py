"""The published JSON Schema of workload files, generated from the models.

The copy beside this module is kept current by a test; write it anew with
`python -m adaptive_qs.workload.json_schema`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from adaptive_qs.workload.file import WorkloadFile

PUBLISHED = Path(__file__).with_name("workload.schema.json")
"""The published file."""


def render() -> str:
    """The text of the published file: JSON Schema (draft 2020-12) of version 1."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:adaptive-qs:workload:1",
        **WorkloadFile.model_json_schema(schema_generator=_AnyOf),
    }
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _AnyOf(GenerateJsonSchema):
    """{"family": "marginal"} names a family, or the queries on an attribute called "family"."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> dict[str, Any]:
        content = super().tagged_union_schema(schema)
        content["anyOf"] = content.pop("oneOf")
        return content


if __name__ == "__main__":
    PUBLISHED.write_text(render(), encoding="utf-8")
