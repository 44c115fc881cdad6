"""The published JSON Schema of workload files, generated from the models.

The copy beside this module is kept current by a test; write it anew with
`python -m adaptive_qs.workload.json_schema`.
"""

from __future__ import annotations

import json
from pathlib import Path

from adaptive_qs.workload.file import WorkloadFile

PUBLISHED = Path(__file__).with_name("workload.schema.json")
"""The published file."""


def render() -> str:
    """The text of the published file: JSON Schema (draft 2020-12) of version 1."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:adaptive-qs:workload:1",
        **WorkloadFile.model_json_schema(),
    }
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PUBLISHED.write_text(render(), encoding="utf-8")
