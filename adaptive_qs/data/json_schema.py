"""The published JSON Schema of schema files, generated from the models.

The copy beside this module is kept current by a test; write it anew with
`python -m adaptive_qs.data.json_schema`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaptive_qs.data.schema import Schema

PUBLISHED = Path(__file__).with_name("schema.schema.json")
"""The published file."""


def schema_json() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that schema files of version 1 satisfy."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:adaptive-qs:schema:1",
        **Schema.model_json_schema(),
    }


def render() -> str:
    """The text of the published file."""
    return json.dumps(schema_json(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(render(), encoding="utf-8")
