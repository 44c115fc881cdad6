"""The report on made-up evaluations: hostile names, large tables, releases; the golden tests look
at the pages of all cases."""

from __future__ import annotations

import re

import pytest

from adaptive_qs.evaluation.columns import COLUMNS_SHOWN
from adaptive_qs.evaluation.evaluation import Promised, evaluation_page
from adaptive_qs.release.facts import Fact
from adaptive_qs.synthesizer import Synthesizer

from .made import HOSTILE, made_evaluation, made_schema, made_table, utility
from .test_golden import check_page

NAMES = ("true.csv", "made.csv")


def shown(schema=None, release=None, names=NAMES, **changes):
    """The page of a made-up evaluation."""
    evaluation = made_evaluation(schema or made_schema(), promised=Promised(release), **changes)
    page = evaluation_page(evaluation, names)
    check_page(page)
    return page


@pytest.fixture(scope="module")
def page():
    return shown()


def test_parts_stand_in_their_order_with_numbers_as_text(page):
    order = [
        *("Verdict", "Whole rows", "Rows that break rules", "Marginals of", "Single columns"),
        *("How columns depend", "Models", "Limitations", "How to read"),
    ]
    heads = re.findall(r"<h2 id=\"[a-z0-9-]+\">([^<]+)", page)
    found = [next(k for k, head in enumerate(heads) if head.startswith(name)) for name in order]
    assert found == sorted(found)
    for text in (
        *("0.252", "1.23 %", "7.00 %", "0.800 ± 0.010"),
        *("700", "−0.375", "1.00 %", "models saw 700 rows only"),
    ):
        assert text in page.replace("\u00a0", " ")
    assert shown() == page
    dark = page.split("prefers-color-scheme: dark")
    assert len(dark) == 2
    assert "color-scheme: dark" in dark[1]


def test_hostile_names_are_escaped_and_whole_in_one_place(page):
    for text in ("<script", "<img", "\u202e"):
        assert text not in page
    assert page.count("x" * 500) == 1
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "<script" not in shown(names=(HOSTILE, HOSTILE))


def test_the_promise_of_the_release_stands_at_the_top_with_what_it_leaves_out():
    schema = made_schema()
    run = Synthesizer(rho=1.0, workload=2, insecure_seed=1)
    release = run.fit(made_table(500), schema=schema).release_
    page, statement = (shown(schema, given) for given in (release, release.manifest))
    assert "at δ = 1e-09 for one row" in page
    assert page == statement
    facts = (Fact(kind="columns", fact="names of columns", basis="NOT COVERED"),)
    drafted = shown(schema, release.manifest.model_copy(update={"facts": facts}))
    warning = "The promise does not cover what the schema reveals"
    assert (statement.count(warning), drafted.count(warning)) == (0, 1)


def test_large_tables_stay_small_and_count_what_is_not_shown():
    number = 110
    schema = made_schema(
        {"name": f"column {k}", "type": "categorical", "values": [f"v{j}" for j in range(300)]}
        if k % 2
        else {"name": f"column {k}", "type": "integer", "min": 0, "max": 299}
        for k in range(number)
    )
    page = shown(schema, utility=utility("column 1"))
    pairs = number * (number - 1) // 2
    assert len(page.encode()) < 1_500_000
    assert f"Showing {COLUMNS_SHOWN} of {number} columns" in page
    assert f"Showing 200 of {pairs:,}; --json has all" in page
    assert all(f">column {k}</th>" in page for k in range(number))
    assert "287 other values" in page
