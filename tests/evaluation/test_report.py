"""The report shows every number it was given, escaped, capped and said so."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.evaluation.associations import most_different
from adaptive_qs.evaluation.columns import COLUMNS_SHOWN
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.promise import Promised
from adaptive_qs.release.facts import Fact
from adaptive_qs.synthesizer import Synthesizer

from .made import (
    COLUMNS,
    HOSTILE,
    made_evaluation,
    made_schema,
    membership,
    page_of,
    queries,
    utility,
)

NAMES = ("true.csv", "made.csv")


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


def shown(schema=None, release=None, names=NAMES, **changes):
    """The page of a made-up evaluation."""
    evaluation = made_evaluation(schema or made_schema(), promised=Promised(release), **changes)
    return page_of(evaluation, names)


@pytest.fixture(scope="module")
def page():
    return shown()


def test_the_page_is_whole(page):
    outline = Outline(page)
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    assert outline.levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(outline.levels))


def test_it_is_for_the_owner_and_the_verdict_comes_first(page):
    assert page.index("Owner only – do not share") < page.index("<h1>") < page.index("Verdict")
    order = [
        *("Verdict", "Whole rows", "Rows that break rules", "Marginals of", "Single columns"),
        *("How columns depend", "Models", "Membership attacks", "Limitations", "How to read"),
    ]
    heads = re.findall(r"<h2 id=\"[a-z_-]+\">([^<]+)", page)
    found = [next(k for k, head in enumerate(heads) if head.startswith(name)) for name in order]
    assert found == sorted(found)


@pytest.mark.parametrize(
    "number",
    ["0.252", "1.23 %", "7.00 %", "0.800 ± 0.010", "−0.010", "0.050", "0.462",
     "0.512", "700", ".50", "−.38", "1.00 %"],
)  # fmt: skip
def test_numbers_are_there_as_text(page, number):
    assert number in page.replace("\u00a0", " ")


def test_the_errors_of_queries_are_there(page):
    """5,000 true rows; √((100·0.002² + 300·0.0062²)/400) = 0.00546 of them."""
    assert 'id="queries"' not in page
    text = shown(queries=queries()).replace("\u00a0", " ")
    rows = re.findall(r"<tr>(.*?)</tr>", text.split('id="queries"')[1].split("</table>")[0])
    cells = [re.findall(r">([^<>]+)<", row) for row in rows[1:]]
    assert cells == [
        ["prefix of single columns", "100", "2", "0.200 %", "10.0", "0.100 %", "n/a"],
        ["prefix and marginal of 2 columns", "300", "6", "0.620 %", "31.0", "0.220 %", "1.22 %"],
        ["all", "400", "8", "0.546 %", "27.3", "0.197 %", "1.06 %"],
    ]
    assert '<a href="#queries">400 queries</a>' in text
    assert "weighted as the workload is" in text
    assert Outline(text).open == []


def test_notes_of_every_part_are_there_and_the_same_input_gives_the_same_page(page):
    for text in ("the tables are made up", "models saw 700 rows only", "control rows were few"):
        assert text in page
    assert shown() == page


def test_values_means_by_groups_and_groups_stand_before_single_columns():
    columns = [
        {"name": "price", "type": "numeric", "edges": [0, 100, 1000], "decimals": 2},
        {"name": HOSTILE, "type": "categorical", "values": ["<b>", "c"]},
    ]
    schema = made_schema(columns)
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 900)
    price = np.round(10 + 80 * group + rng.random(900), 2)
    true, made = (
        pd.DataFrame({"price": values, HOSTILE: np.array(["<b>", "c"])[group]})
        for values in (price, np.round(99 * rng.random(900), 2))
    )
    evaluation = evaluate(true, made, schema)
    page = page_of(evaluation, NAMES)
    outline = Outline(page)
    assert outline.open == []
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    for mean in (true.price.mean(), made.price.mean(), *true.groupby(HOSTILE).price.mean()):
        assert f"{mean:.2f}" in page
    assert ">differs<" in page


def test_hostile_names_are_escaped_and_whole_in_one_place(page):
    assert "<script" not in page
    assert "<img" not in page
    assert "\u202e" not in page
    assert page.count("x" * 500) == 1
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "<script" not in shown(names=(HOSTILE, HOSTILE))


def test_parts_that_were_not_requested_are_said_to_be_missing():
    page = shown(utility=None, membership=None)
    for text in ("No model was trained", "no attack was run"):
        assert text in page
    assert "Budget and rounds" not in page
    unknown = shown(membership=membership(bound=None))
    assert "The promise behind the table is not known" in unknown


def test_tables_of_one_column():
    schema = made_schema([{"name": "only", "type": "integer", "min": 0, "max": 3}])
    page = shown(schema, ways=1, utility=utility("only"))
    assert Outline(page).open == []
    assert "part-association" not in page


def test_a_release_adds_budget_and_rounds():
    schema = made_schema()
    rng = np.random.default_rng(3)
    table = pd.DataFrame({
        HOSTILE: rng.choice(["b"], 500), "age": rng.integers(0, 100, 500),
        "city": [f"city {k}" for k in rng.integers(0, 40, 500)],
        "income": rng.choice(["low", "high"], 500),
    })  # fmt: skip
    release = Synthesizer(rho=1.0, workload=2).fit(table, schema=schema).release_
    page = shown(schema, release)
    rounds = len(release.rounds)
    assert rounds > 0
    assert f"All {rounds} round" in page
    assert "occur together, with noise" in page
    statement = shown(schema, release.manifest)
    assert "occur together, with noise" in statement
    assert "The rounds are shown if the release is given" in statement


def test_a_promise_that_leaves_the_schema_out_is_warned_of():
    schema = made_schema(COLUMNS[1:2])
    table = pd.DataFrame({"age": np.arange(500) % 100})
    statement = Synthesizer(rho=1.0, workload=1).fit(table, schema=schema).release_.manifest
    drafted = statement.model_copy(
        update={"facts": (Fact(kind="columns", fact="names of columns", basis="NOT COVERED"),)}
    )
    parts = {"ways": 1, "utility": None, "membership": membership(bound=None), "ordered": ()}
    covered, page = (shown(schema, release, **parts) for release in (statement, drafted))
    warning = "The promise does not cover what the schema reveals"
    assert warning not in covered
    assert page.count(warning) == 2
    assert f"{warning}, which was taken from the data" in page


def test_errors_that_cannot_be_told_from_chance_make_no_range(page):
    tile = "errors of a fresh sample and of independent columns</span>"
    assert page.count(tile) == 1
    schema = made_schema(COLUMNS[1:2])
    single = shown(schema, ways=1)
    assert tile not in single
    assert "error of a fresh sample</span>" in single


def test_large_tables_stay_small_and_say_what_is_left_out():
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


def test_the_page_follows_the_scheme_of_its_reader(page):
    dark = page.split("prefers-color-scheme: dark")
    assert len(dark) == 3  # of the page, and of its charts
    assert "color-scheme: dark" in dark[1]


def test_the_most_different_columns_are_chosen_in_order():
    difference = np.zeros((4, 4))
    difference[1, 3] = difference[3, 1] = -0.5
    difference[0, 2] = difference[2, 0] = 0.1
    assert most_different(difference, 2) == [1, 3]
    assert most_different(difference, 9) == [0, 1, 2, 3]
