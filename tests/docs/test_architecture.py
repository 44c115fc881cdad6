"""Modules that the pages about the code name are there."""

import re

import pytest

from .snippets import ROOT

PACKAGE = ROOT / "adaptive_qs"
FOLDERS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}


def paths(page: str) -> set[str]:
    """Modules of the package, and folders of it, that a page names relative to it."""
    named = re.findall(r"`([a-z_]+/?[a-z_/]*(?:\.py|/))`", (ROOT / page).read_text())
    return {path for path in named if path.split("/")[0] in FOLDERS or path.count("/") == 0}


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_modules_and_folders_that_a_page_names_exist(page):
    named = paths(page)
    assert len(named) >= 7
    there = {path for path in named if (PACKAGE / path).exists() or (ROOT / path).exists()}
    assert named - there == set()
    named = re.findall(r"(?:tests|scripts|examples|docs)/[\w/.-]*\w", (ROOT / page).read_text())
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_module_is_named_in_the_architecture():
    """By its path, or as a layer that is one module."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    layers = set(re.findall(r"`(\w+)`", page.split("\n## Layers\n")[1]))
    modules = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.stem[0] != "_"}
    assert {
        str(m) for m in modules if f"`{m}`" not in page and str(m.with_suffix("")) not in layers
    } == set()


def registries(page: str, section: str) -> set[tuple[str, str]]:
    """Kinds of things and where their registries are, from a table."""
    table = (ROOT / page).read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = re.findall(
        r"^\| (?:an? )?([a-z ]+?)(?: of the loop)? \|(?:.*\|)? `(\S+)` \|$", table, re.M
    )
    return set(rows)


def test_both_pages_name_the_same_registries():
    named = registries("ARCHITECTURE.md", "Registries")
    assert len(named) == 7
    assert registries("CONTRIBUTING.md", "Extend") == named


def test_the_layers_are_those_of_the_contract():
    contract = re.search(r"\nlayers = \[\n(.*?)\n\]", (ROOT / "pyproject.toml").read_text(), re.S)
    table = (ROOT / "ARCHITECTURE.md").read_text().split("\n## Layers\n")[1].split("\n## ")[0]
    named = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`.+?) \|", table, re.M)]
    checked = set(re.findall(r"\w+", contract[1]))
    assert {layer for row in named for layer in row} == checked - {"__main__"}
