"""Every page of the documentation can be followed by whoever reads it."""

import re

import pytest

from .snippets import LANGUAGES, PAGES, ROOT, quick_tables, read_page, snippets

NOT_RUN = 6
"""Blocks that no test runs. Excuse another one only if a reader can run it and a test cannot."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_whoever_follows_a_page_gets_what_it_shows(page, tmp_path):
    with quick_tables():
        read_page(page, tmp_path)


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
