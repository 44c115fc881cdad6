"""The pages in a real browser: what people see, and nothing else."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from ..evaluation.made import made_schema, tables
from .seen import Seen

pytestmark = pytest.mark.slow

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
LEAST_CONTRAST = 4.5
"""WCAG 2.2, success criterion 1.4.3."""


def test_nothing_is_fetched_said_or_run(seen):
    assert seen.requests == [seen.url]
    assert seen.messages == []
    assert seen.page.evaluate("document.title") != "taken"
    assert seen.page.locator("script, img, iframe, object, embed").count() == 0


def test_the_policy_refuses_what_a_page_must_not_do(browser, files, tmp_path):
    """The recorder would see a fetch and a script: without the policy it does."""
    content = (files / "report.html").read_text()
    bait = '<img src="https://example.invalid/x.png"><script>alert(1)</script></main>'
    baited = content.replace("</main>", bait)
    (tmp_path / "baited.html").write_text(baited)
    open_policy = re.sub(r"<meta http-equiv[^>]*>", "", baited)
    (tmp_path / "open.html").write_text(open_policy)
    kept, leaked = (Seen(browser, tmp_path / name, 1280) for name in ("baited.html", "open.html"))
    assert kept.requests == [kept.url]
    assert not any(message.startswith("dialog") for message in kept.messages)
    assert "https://example.invalid/x.png" in leaked.requests
    assert "dialog 1" in leaked.messages
    kept.page.close()
    leaked.page.close()


def test_the_page_is_no_wider_than_the_window(seen):
    assert seen.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    outside = """[...document.querySelectorAll('main *')].filter(e => !e.closest('.box, .hidden') &&
        e.getBoundingClientRect().right > innerWidth + 1).length"""
    assert seen.page.evaluate(outside) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(seen, scheme):
    seen.page.emulate_media(color_scheme=scheme)
    worst = seen.page.evaluate(CONTRAST)
    paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    seen.page.emulate_media(color_scheme="light")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert worst["checked"] > 100
    assert worst["ratio"] >= LEAST_CONTRAST, worst


def test_figures_tables_and_regions_have_names(seen):
    snapshot = seen.page.locator("body").aria_snapshot()
    roles = {"img": 0, "table": 0, "region": 0}
    for role, name in re.findall(r"^\s*- '?(img|table|region)\b ?(\"[^\n]*)?", snapshot, re.M):
        assert re.match(r"\"\w", name), f"a {role} without a name"
        roles[role] += 1
    assert roles["table"] > 5
    assert roles["img"] >= 1
    assert roles["region"] > 3
    assert re.search(r"^- main:", snapshot, re.M)
    assert re.search(r"navigation \"Contents\"", snapshot)
    svg = seen.page.locator("svg:not([role=img][aria-label])")
    assert svg.count() == 0


def test_tables_have_heads_with_a_scope_and_captions(seen):
    page = seen.page
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    empty = (
        "[...document.querySelectorAll('th, caption')].filter(e => !e.textContent.trim()).length"
    )
    assert page.evaluate(empty) == 0


def test_headings_follow_each_other(seen):
    levels = seen.page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(e => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_the_first_key_leads_past_the_banner_and_boxes_scroll_by_keys(seen):
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    assert seen.page.locator(".box:not([tabindex='0'])").count() == 0


def test_long_lists_open_with_a_click(seen):
    details = seen.page.locator("details").first
    assert not details.locator("table, ul").first.is_visible()
    details.locator("summary").click()
    assert details.locator("table, ul").first.is_visible()
    details.locator("summary").click()


def test_the_report_shows_the_verdict_and_its_numbers(browser, files):
    seen = Seen(browser, files / "report.html", 1280)
    text = seen.page.locator("body").inner_text().replace("\u00a0", " ")
    assert text.lstrip().startswith("Skip to the content\nOwner only – do not share")
    assert text.index("Verdict") < text.index("Contents") < text.index("Single columns")
    numbers = ("0.252", "0.800 ± 0.010", "1.23 %")
    assert [number for number in numbers if number not in text] == []
    bars = seen.page.locator(".card").filter(has_text="income").locator("td.bars i.a")
    low, high = (bars.nth(k).bounding_box()["width"] for k in (0, 1))
    rows = np.bincount(tables(made_schema()).true.columns[3])
    assert low / high == pytest.approx(rows[0] / rows[1], abs=0.01)
    seen.page.close()


def test_the_page_of_a_release_shows_what_was_promised(browser, files):
    seen = Seen(browser, files / "release.html", 1280)
    text = seen.page.locator("body").inner_text()
    for words in ("What is promised", "add or remove one row", "ρ = 1.00 (zCDP)", "95 % interval"):
        assert words in text
    assert "Owner only" not in text
    seen.page.close()


@pytest.mark.parametrize("name", ["report", "release"])
def test_it_prints(browser, files, name):
    seen = Seen(browser, files / f"{name}.html", 1280)
    seen.page.emulate_media(media="print")
    printed = seen.page.pdf(prefer_css_page_size=True, print_background=True)
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 3 <= pages <= 25
    assert re.search(rb"/MediaBox\s*\[0 0 59[45]\.?\d* 84[12]", printed), "A4"
    assert len(printed) > 50_000
    seen.page.close()


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(
    ("value", "whole"), [("Complementary", True), ("1200 to below 1800", True), ("W" * 64, False)]
)
def test_values_stay_on_one_line_beside_their_bars_unless_very_long(
    browser, files, tmp_path, width, value, whole
):
    content = (files / "release.html").read_text()
    changed, number = re.subn(r'(class="value">)city \d+', rf"\g<1>{value}", content)
    assert number > 1
    (tmp_path / "values.html").write_text(changed)
    opened = Seen(browser, tmp_path / "values.html", width)
    cells = opened.page.locator(".card .value").filter(has_text=value)
    assert cells.count() == number
    lines = "e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)"
    assert (cells.first.evaluate(lines) < 1.5) == whole
    over = "[...document.querySelectorAll('.card')].filter(c => c.scrollWidth > c.clientWidth + 1)"
    assert opened.page.evaluate(f"{over}.length") == 0
    opened.page.close()
