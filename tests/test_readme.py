"""What the README tells a newcomer to run is what runs; tests/docs runs its other examples."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
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


@pytest.mark.parametrize("page", [README, RESULTS])
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
