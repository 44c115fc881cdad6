"""Links of the documentation lead somewhere, to the section too, and modules name real proofs."""

import re
from pathlib import Path

import pytest

from .snippets import PAGES, ROOT

LINKS = [
    (page.relative_to(ROOT).as_posix(), link)
    for page in PAGES
    for link in re.findall(r"\]\(((?!http)[^)]+)\)", page.read_text())
]
PROOFS = [
    (module.relative_to(ROOT).as_posix(), section)
    for module in sorted((ROOT / "adaptive_qs").rglob("*.py"))
    for section in re.findall(r"Proof: docs/proofs\.md, section (\d+)\.", module.read_text())
]


def anchors(page: Path) -> set[str]:
    """The fragments by which GitHub names the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize(("page", "link"), LINKS)
def test_links_lead_somewhere(page, link):
    path, _, anchor = link.partition("#")
    source = ROOT / page
    target = (source.parent / path).resolve() if path else source
    assert target.exists()
    assert not anchor or anchor in anchors(target)


def test_modules_name_sections_of_the_proofs():
    headings = re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "proofs.md").read_text(), re.MULTILINE)
    assert PROOFS
    assert {section for _, section in PROOFS} <= set(headings)


def test_every_page_is_linked_from_the_index():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for page, link in LINKS if page == "docs/README.md"}
    assert [page.name for page in PAGES[1:] if page != index and page not in linked] == []
    assert ("README.md", "docs/README.md") in LINKS
