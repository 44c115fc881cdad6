"""What the README tells a newcomer to run is what runs; tests/docs runs its other examples."""

import json
import math
import re
from pathlib import Path

from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import load_query_workload

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_ci_runs_the_readme_test_command_as_it_stands():
    command = next(block for block in blocks("sh") if "pytest" in block).strip()
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_schema_and_workload_examples_are_valid(tmp_path):
    schema, workload = blocks("json")
    domain = Schema.parse(json.loads(schema)).domain()
    path = tmp_path / "workload.json"
    path.write_text(workload)
    assert load_query_workload(path, domain).num_sets == math.comb(len(domain), 2) + 2 + len(domain)


def test_no_placeholder_is_left():
    assert "@@" not in README
