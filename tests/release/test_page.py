"""The page inside a release bundle: only what the bundle holds, and that correctly."""

import html
import re
import zipfile
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.release.bundle import list_resolutions, unconnected_columns
from adaptive_qs.release.page import (
    COLUMNS_SHOWN,
    MARGINALS_SHOWN,
    MOST_LINES,
    MOST_STEPS,
    Marginal,
    SingleColumn,
    bound_belief,
    column_chart,
    describe_uses,
    release_page,
    single_columns,
    workload_marginals,
)
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

HOSTILE = "<script>alert(1)</script>\"'&\u202e😀" + "x" * 500
COLUMNS = [
    {"name": HOSTILE, "type": "categorical", "values": ["a", "<b>bold</b>"], "missing": ["?"]},
    {"name": "age", "type": "integer", "min": 0, "max": 99},
    {"name": "flag", "type": "boolean", "description": "<i>is it</i>"},
    {"name": "only", "type": "categorical", "values": ["x"]},
]


def fitted(path, columns=COLUMNS, rows=2_000, **options):
    schema = Schema.parse({"version": 1, "columns": columns})
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            HOSTILE: rng.choice(["a", "<b>bold</b>"], rows),
            "age": rng.integers(0, 100, rows),
            "flag": rng.random(rows) < 0.3,
            "only": "x",
        }
    )
    Synthesizer(rho=0.1, workload=2, **options).fit(table, schema=schema).save(path)
    return Release.load(path)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("page") / "r.zip")


@pytest.fixture(scope="module")
def page(bundle):
    return release_page(bundle)


def opened(page):
    """The text of a page, without tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", page)).replace("\u00a0", " ")


def test_it_opens_with_what_the_data_are_and_what_they_are_good_for(bundle, page):
    """From the schema in the bundle; markup in it stays text."""
    about = {"title": "Visits <b>", "licence": "CC0", "description": "One row for a visit."}
    told = replace(bundle, schema=bundle.schema.changed(about=about))
    changed = release_page(told)
    assert "<title>Visits &lt;b&gt;</title>" in changed
    text = opened(changed)
    order = ["Visits", "One row for a visit.", "licence", "CC0", "What it is good for", "promised"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "publisher" not in text
    assert "A release under differential privacy" in page.split("</h1>")[0]
    heads = re.findall(r"<h2 id=\"([a-z-]+)\">", changed)[1:]  # the contents come first
    assert heads == ["good-for", "promise", "columns", "combinations", "rounds", "facts", "use",
                     "versions"]  # fmt: skip


def test_what_it_is_good_for_follows_from_the_released_noise(bundle):
    def column(name, l1):
        return SingleColumn(1, SimpleNamespace(name=name), None if l1 is None else 9.0, l1)

    columns = [column("noisy", 0.3), column("fine", 0.02), column("finer", 0.01)]
    marginals = [
        Marginal(("fine", "finer"), (3, 3), (3, 3), 1.0, 0.04),
        Marginal(("fine", "noisy"), (3, 3)),
        Marginal(("finer", "noisy"), (3, 3), (2, 3), 1.0, 0.04),
    ]
    uses = describe_uses(
        [*columns, column("single", None)], marginals, ("noisy",), ["fine <= finer"]
    )
    assert uses.good == (
        "counts and shares of single columns: finer and fine",
        "counts by combinations that were measured: fine × finer",
        "rules that every row of a table keeps: fine <= finer",
    )
    assert uses.careful[0] == "single columns whose noise is large: noisy"
    assert uses.careful[1].endswith("over groups of codes: finer in 2 groups × noisy")
    assert uses.careful[2].startswith("1 combination not measured as a whole")
    assert uses.bad[0] == "how anything depends on noisy: no combination was measured"
    assert "groups of fewer than about 18 rows" in uses.bad[1]  # 1.96 · 9
    assert "single rows" in uses.bad[2]
    section = release_page(bundle).split('id="good-for"')[1].split("</section>")[0]
    model = bundle.model()
    parts = (single_columns(bundle.schema, model, model.total),
             workload_marginals(bundle, model, model.total))  # fmt: skip
    found = describe_uses(*parts, bundle.manifest.unconnected)
    assert section.count("<li>") == sum(map(len, found)) > 0
    assert found.bad[-1] in section


@pytest.mark.parametrize(("epsilon", "sure"), [(0.0, 0.5), (1.0, 0.7311), (1e12, 1.0)])
def test_epsilon_in_plain_words(epsilon, sure):
    assert bound_belief(epsilon) == pytest.approx(sure, abs=1e-4)


def test_the_bundle_holds_the_page_and_can_do_without(bundle, page, tmp_path):
    bundle.save(tmp_path / "r.zip")
    with (
        zipfile.ZipFile(tmp_path / "r.zip") as full,
        zipfile.ZipFile(tmp_path / "old.zip", "w") as old,
    ):
        assert full.read("page.html").decode() == page
        for name in full.namelist():
            if name != "page.html":
                old.writestr(name, full.read(name))
    again = Release.load(tmp_path / "old.zip")
    assert release_page(again) == page
    again.save(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "r.zip").read_bytes()


def test_it_says_what_was_promised_and_paid(bundle, page):
    manifest = bundle.manifest
    assert "one row" in page
    assert "add or remove one row" in page
    assert f"ρ = {manifest.rho:.6g}" in page
    assert f"{manifest.epsilon:.6g}" in page
    text = opened(page)
    assert all(fact.fact in unescape(text) for fact in manifest.facts)


def test_names_are_escaped_and_cut(page):
    assert "<script" not in page
    assert "<b>bold" not in page
    assert "<i>is it" not in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "\u202e" not in page
    assert "x" * 500 in page, "the list of columns has the whole name"


def test_only_seeded_noise_is_called_not_private(page, tmp_path):
    assert "NOT PRIVATE" not in page
    with pytest.warns(UserWarning, match="insecure_seed"):
        insecure = fitted(tmp_path / "s.zip", insecure_seed=3)
    assert release_page(insecure).count("NOT PRIVATE") >= 2


def test_the_counts_shown_are_the_released_ones(bundle, page):
    model = bundle.model()
    for value in model.marginal((2,)):
        assert f'<td class="n">{round(value):,}</td>'.replace("-", "−") in page


@pytest.mark.slow
def test_many_columns_are_capped_and_said_so(bundle):
    number = COLUMNS_SHOWN + 6
    schema = Schema.parse(
        {
            "version": 1,
            "columns": [
                {"name": f"c{k}", "type": "integer", "min": 0, "max": 299} for k in range(number)
            ],
        }
    )
    rng = np.random.default_rng(2)
    table = pd.DataFrame({f"c{k}": rng.integers(0, 300, 300) for k in range(number)})
    model = Synthesizer(rho=5.0, workload=2).fit(table, schema=schema)
    page = release_page(model.release_)
    assert f"Showing {COLUMNS_SHOWN} of {number} columns" in page
    assert page.count('<article class="card">') == COLUMNS_SHOWN
    assert f"Each bar holds {300 // MOST_STEPS + 1} neighbouring codes of 300." in page
    assert all(f">c{k}</th>" in page for k in range(number))
    assert len(page.encode()) < 1_000_000
    assert page.count("<tr>") < 50 * number + 20 * MARGINALS_SHOWN


def column(**content):
    return Schema.parse({"version": 1, "columns": [{"name": "c", **content}]}).columns[0]


def axis_of(declared, weights):
    """The chart of a column whose bars are the groups of codes themselves."""
    return column_chart(declared, weights, lambda group: group)


def test_neighbours_are_put_together_and_missing_values_kept_apart():
    axis = axis_of(column(type="integer", min=0, max=99, missing=["?"]), [1.0] * 101)
    assert axis.scale
    assert [group.label for group in axis.bars[:2]] == ["0 to 2", "3 to 5"]
    assert axis.note == "Each bar holds 3 neighbouring codes of 100."
    assert axis.bars[-1].ends == ("99", "99")
    assert [group.codes for group in axis.apart] == [(100,)]
    covered = [code for group in (*axis.bars, *axis.apart) for code in group.codes]
    assert covered == list(range(101))


@pytest.mark.parametrize(
    ("edges", "uneven"), [([*range(19), 60_000, 70_000], True), (range(0, 21_000, 1_000), False)]
)
def test_a_chart_says_if_bins_are_not_equally_wide(edges, uneven):
    axis = axis_of(column(type="numeric", edges=list(edges)), [1.0] * (len(edges) - 1))
    assert axis.scale
    assert ("their bins are not" in axis.note) == uneven


def test_thousands_are_apart_but_not_in_years():
    edges = [*range(0, 19_000, 1_000), 2_300_000]
    wide = axis_of(column(type="numeric", edges=edges), [1.0] * 19)
    assert wide.bars[1].label == "1,000 to below 2,000"
    assert wide.bars[-1].ends == ("18,000", "2,300,000")
    years = axis_of(column(type="integer", min=1990, max=2020), [1.0] * 31)
    assert years.bars[0].label == "1990"


def test_rare_values_are_put_together():
    values = [f"v{k}" for k in range(50)]
    axis = axis_of(column(type="categorical", values=values), list(range(50)))
    assert not axis.scale
    assert len(axis.bars) == MOST_LINES
    assert axis.bars[0].label == "v49"
    assert axis.bars[-1].label == f"{50 - MOST_LINES + 1} other values"
    assert sorted(c for g in axis.bars for c in g.codes) == list(range(50))
    assert str(MOST_LINES - 1) in axis.note


def changed(bundle, **parts):
    """A bundle with other parts, whose manifest says what follows from them."""
    kept = {"workload": bundle.workload, "estimates": bundle.estimates, "rounds": bundle.rounds}
    of = kept | parts
    unconnected = unconnected_columns(of["workload"], of["estimates"])
    says = {
        "unconnected": unconnected,
        "resolutions": list_resolutions(of["rounds"], bundle.domain),
    }
    manifest = bundle.manifest.model_copy(update=says)
    return replace(bundle, manifest=manifest, **parts)


def test_a_column_is_unconnected_if_no_combination_holds_its_estimates(bundle):
    domain = bundle.workload.domain
    several = [n for n, size in zip(domain.names, domain.sizes) if size > 1]
    singles = {c: e for c, e in bundle.estimates.items() if len(c) < 2}
    none = changed(bundle, estimates=singles)
    assert none.manifest.unconnected == tuple(several)
    page = release_page(none)
    assert f"No combination measured with {len(several)} of {len(domain)} columns:" in page
    listed = page[page.index('<details id="unconnected">') :]
    assert listed[: listed.index("</details>")].count("<li>") == len(several)
    pair = tuple(sorted(map(domain.names.index, several[:2])))
    one = changed(none, estimates={**singles, pair: next(iter(singles.values()))})
    assert one.manifest.unconnected == tuple(several[2:])


@pytest.mark.parametrize(
    ("asked", "unconnected"),
    [
        ([(0,), (1,), (2,), (3,)], []),  # no combination
        ([(0,), (1, 2)], [1, 2]),  # none of column 0
        ([(0, 3), (1, 3)], []),  # only with column 3, of one code
        ([(0, 3), (0, 1, 3)], [0, 1]),
    ],
)
def test_a_column_is_unconnected_only_if_something_was_asked_that_can_be_lost(
    bundle, asked, unconnected
):
    domain = bundle.workload.domain
    assert [size > 1 for size in domain.sizes] == [True, True, True, False]
    singles = {c: e for c, e in bundle.estimates.items() if len(c) < 2}
    workload = Workload(domain, dict.fromkeys(asked, 1.0))
    found = changed(bundle, workload=workload, estimates=singles)
    assert found.manifest.unconnected == tuple(domain.names[i] for i in unconnected)
    assert ("No combination measured with" in release_page(found)) == bool(unconnected)


@pytest.mark.parametrize("rho", [1e-9, 1e6])
@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("columns", [COLUMNS[3:], COLUMNS[1:2], COLUMNS[1:]])
def test_extreme_runs_have_a_page(columns, rows, rho):
    """A paid release is never lost to its page."""
    schema = Schema.parse({"version": 1, "columns": columns})
    table = pd.DataFrame({"age": [50] * rows, "flag": [True] * rows, "only": ["x"] * rows})
    release = Synthesizer(rho=rho, workload=2 if len(columns) > 1 else 1, beyond_limits=True).fit(
        table[[column["name"] for column in columns]], schema=schema
    )
    page = release_page(release.release_)
    assert page.startswith("<!doctype html>")
    assert not re.search(r"\bnan\b|\binf\b", page)
