"""Links of the documentation lead somewhere, to the section too, and modules name real proofs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
LINKS = [
    (page.name, link)
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
    target = ROOT / "docs" / (path or page)
    assert target.exists()
    assert not anchor or anchor in anchors(target)


def test_modules_name_sections_of_the_proofs():
    headings = re.findall(r"^## (\d+)\. ", (ROOT / "docs" / "proofs.md").read_text(), re.MULTILINE)
    assert PROOFS
    assert {section for _, section in PROOFS} <= set(headings)


def test_every_page_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES if f"docs/{page.name}" not in readme] == []
