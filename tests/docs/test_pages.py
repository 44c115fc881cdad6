"""Every page of the documentation can be followed by whoever reads it."""

import re
import subprocess
from pathlib import Path

import pytest

from .snippets import LANGUAGES, PAGES, ROOT, quick_tables, read_page, snippets

NOT_RUN = 6
"""Blocks that no test runs. Excuse another one only if a reader can run it and a test cannot."""


FIRST = {ROOT / "README.md"}
"""What a reader opens first; the other pages are followed by ``pytest -m slow``."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=str(page.relative_to(ROOT)), marks=[] if page in FIRST else [pytest.mark.slow]
        )
        for page in PAGES
    ],
)
def test_whoever_follows_a_page_gets_what_it_shows(page, tmp_path):
    with quick_tables():
        read_page(page, tmp_path)
    assert unignored([path for path in tmp_path.iterdir() if not path.is_symlink()]) == set()


def unignored(left: list[Path]) -> set[str]:
    """Files that git would take up if they lay in a checkout: keys of ledgers must not be."""
    names = {f"{path.name}/" if path.is_dir() else path.name for path in left}
    if not names or not (ROOT / ".git").exists():
        return set()
    asked = ["git", "check-ignore", "--no-index", *names]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return names - set(done.stdout.splitlines())


def test_git_would_take_up_other_files():
    kept = [Path("adult.ledger.key"), Path("notes.md")]
    assert unignored(kept) == ({"notes.md"} if (ROOT / ".git").exists() else set())


def test_few_blocks_are_not_run():
    blocks = [block for page in PAGES for block in snippets(page.read_text())]
    assert len([block for block in blocks if block.excuse]) == NOT_RUN
    assert len(blocks) > 10 * NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_fence_is_found_and_has_a_language_that_is_run(page):
    text = page.read_text()
    blocks = snippets(text)
    assert 2 * len(blocks) == len(re.findall(r"^\s*```", text, re.MULTILINE))
    assert {block.language for block in blocks} <= LANGUAGES
