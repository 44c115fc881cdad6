"""The verdicts, figures and pages of known problems; ``python -m tests.evaluation.test_golden``
writes ``golden/`` anew."""

from __future__ import annotations

import html
import itertools
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from adaptive_qs.evaluation.checks import GRADES, all_checks, plain
from adaptive_qs.evaluation.evaluation import evaluation_page, text_parts, titled_findings

from .scenarios import CASES

FOLDER = Path(__file__).parent / "golden"
VARYING = re.compile(r"\d[\d,.]*")
"""Numbers that depend on the version of a library, where models are trained."""


@cache
def evaluated(name):
    """The evaluation of a case, once for all tests."""
    return CASES[name]()


def stored(name):
    """The file of a case."""
    return FOLDER / f"{name.replace(' ', '_')}.txt"


WITH_FIGURES = {"a rule broken", "values moved in bins", "queries lost", "models",
                "copies", "a release contradicted", "independent columns"}  # fmt: skip
"""Cases of which the figures of all parts are stored, too."""


def rendered(name):
    """All that a terminal and the top of a page say of a case, with some figures."""
    found = evaluated(name)
    verdict = found.verdict
    lines = [f"{s.grade}, {s.word}: {plain(s.said)}" for s in verdict.sentences]
    short = [k for k, s in enumerate(verdict.sentences) if plain(s.said) in verdict.brief]
    lines += [f"in short: {short}", *(f"limitation: {note}" for note in found.limitations)]
    for title, rows, tables in text_parts(titled_findings(found)) if name in WITH_FIGURES else ():
        lines += ["", title, *(f"{head}: {text}" for head, text in rows)]
        for heads, cells in tables:
            lines += [" | ".join(row) for row in (heads, *cells[:2])]
    if found.utility is not None:
        lines = [VARYING.sub("#", x) if "AUROC" in x or " ± " in x else x for x in lines]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(5)
def test_what_is_found_is_what_is_stored(name):
    assert rendered(name) == stored(name).read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Ids, links, headings and unclosed elements of a page."""

    VOID = frozenset({"meta", "link", "path", "wbr"})

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links, self.levels = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        if re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def check_page(page):
    """Refuse a page with open elements, dead links, equal ids or headings out of order."""
    outline = Outline(page)
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert outline.levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(outline.levels))


@pytest.mark.parametrize("name", CASES)
def test_page_and_json_have_what_was_found(name):
    found = evaluated(name)
    page = evaluation_page(found, ("true.csv", "made.csv"))
    check_page(page)
    assert page.index("Owner only – do not share") < page.index("<h1>") < page.index("Verdict")
    text = html.unescape(plain(re.sub(r"<[^>]*>", "", page)))
    for sentence in found.verdict.sentences:
        assert plain(sentence.said) in text
    for note in found.limitations:
        assert note in text
    for _, rows, tables in text_parts(titled_findings(found)):
        for cell in itertools.chain(*rows, *(row for _, cells in tables for row in cells)):
            assert cell in text
    content = found.as_json()
    assert json.loads(json.dumps(content, allow_nan=False)) == json.loads(json.dumps(content))
    assert (content["verdict"], content["notice"][:18]) == (
        found.verdict.brief,
        "For the owner only",
    )


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_never_better_than_what_is_found(name):
    verdict = evaluated(name).verdict
    counting = {check.name for check in all_checks() if check.about} - {"queries"}
    grades = [f.grade for k, f in verdict.findings.items() if k in counting and f.said]
    assert [*GRADES].index(verdict.overall.grade) >= max(map([*GRADES].index, grades))
    assert sum(grade == "good" for grade in verdict.uses.values()) < len(verdict.uses)


def test_every_word_of_a_check_is_found_in_some_case():
    texts = "".join(path.read_text(encoding="utf-8") for path in FOLDER.iterdir())
    words = {f"{rule.grade}, {rule.word}:" for check in all_checks() for rule in check.rules}
    elsewhere = {"good, agrees:", "plain, no gain:", "fair, some loss:", "good, small loss:",
                 "fair, frequent values lost:"}  # fmt: skip
    assert {word for word in words if word not in texts} == elsewhere


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in CASES:
        stored(each).write_text(rendered(each), encoding="utf-8")
