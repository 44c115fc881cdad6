"""What the README tells a newcomer to run is what runs; tests/docs runs its other examples."""

import json
import math
import re
from pathlib import Path

import pytest

from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import resolve_queries

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs" / "overview.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()
MOST_CHARACTERS = 12_000


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_ci_runs_the_readme_test_command_as_it_stands():
    command = next(block for block in blocks(README, "sh") if "pytest" in block).strip()
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize(
    "command", ["ruff check .", "ruff format --check .", "mypy", "lint-imports"]
)
def test_nox_and_the_hooks_check_what_ci_checks(command):
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
    words = ", ".join(f'"{word}"' for word in command.split())
    assert f"session.run({words})" in (ROOT / "noxfile.py").read_text()
    hook = "entry: " + " ".join(command.split()[:2]).removesuffix(" .")
    assert hook in (ROOT / ".pre-commit-config.yaml").read_text()


def test_the_schema_and_workload_examples_are_valid(tmp_path):
    schema, workload = blocks(OVERVIEW, "json")
    domain = Schema.parse(json.loads(schema)).domain()
    path = tmp_path / "workload.json"
    path.write_text(workload)
    assert resolve_queries(path, domain).num_sets == math.comb(len(domain), 2) + 2 + len(domain)


@pytest.mark.parametrize("page", [README, OVERVIEW, RESULTS])
def test_no_placeholder_is_left(page):
    assert "@@" not in page


def test_the_readme_is_read_in_minutes():
    assert len(README) <= MOST_CHARACTERS


def table_cells(page: str) -> list[str]:
    """The cells of a page's tables, but for the first of each row."""
    rows = re.findall(r"^\|(.+)\|$", page, re.MULTILINE)
    return [cell.strip() for row in rows for cell in row.split("|")[1:]]


def test_figures_of_the_digest_are_those_of_the_results():
    digest = README.split("\n## How good it is\n")[1].split("\n## ")[0]
    figures = [cell for cell in table_cells(digest) if re.search(r"\d\.\d", cell)]
    assert len(figures) > 20
    assert set(figures) - set(table_cells(RESULTS)) == set()
