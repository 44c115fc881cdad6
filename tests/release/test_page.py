"""The page inside a release bundle: only what the bundle holds, and that correctly."""

import json
import re
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.domain import Domain, subsets
from adaptive_qs.release.bundle import unconnected_columns
from adaptive_qs.release.page import (
    COLUMNS_SHOWN,
    MARGINALS_SHOWN,
    MOST_LINES,
    MOST_STEPS,
    axis_of,
    budget_parts,
    expected_l1,
    group_variance,
    is_measured,
    known_noise_l1,
    measured_variance,
    release_page,
)
from adaptive_qs.release.release import Release
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose
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
    parts = budget_parts(manifest)
    assert sum(part.part for part in parts) == pytest.approx(1)
    assert sum(part.rho for part in parts) == pytest.approx(manifest.rho_spent)
    assert {part.name for part in parts} >= {"number of rows", "single columns"}


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


def test_neighbours_are_put_together_and_missing_values_kept_apart():
    axis = axis_of(column(type="integer", min=0, max=99, missing=["?"]), [1.0] * 101)
    assert axis.scale
    assert [group.label for group in axis.groups[:2]] == ["0 to 2", "3 to 5"]
    assert axis.note == "Each bar holds 3 neighbouring codes of 100."
    assert axis.groups[-1].ends == ("99", "99")
    assert [group.codes for group in axis.apart] == [(100,)]
    covered = [code for group in (*axis.groups, *axis.apart) for code in group.codes]
    assert covered == list(range(101))


UNEVEN = "Bins are not equally wide, but are drawn so."


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"type": "numeric", "edges": [*range(0, 19), 60_000, 70_000]}, True),
        ({"type": "numeric", "edges": list(range(0, 21_000, 1_000))}, False),
        ({"type": "integer", "min": 0, "max": 2_300_000, "bin_starts": [*range(19), 50_000]}, True),
        ({"type": "integer", "min": 0, "max": 100, "bins": 30}, False),
    ],
)
def test_bins_that_are_not_equally_wide_are_said_to_be(content, told):
    declared = column(**content)
    axis = axis_of(declared, [1.0] * declared.size)
    assert axis.scale
    assert (UNEVEN in axis.note) == told


def test_thousands_are_apart_but_not_in_years():
    edges = [*range(0, 19_000, 1_000), 2_300_000]
    wide = axis_of(column(type="numeric", edges=edges), [1.0] * 19)
    assert wide.groups[1].label == "1,000 to below 2,000"
    assert wide.groups[-1].ends == ("18,000", "2,300,000")
    years = axis_of(column(type="integer", min=1990, max=2020), [1.0] * 31)
    assert years.groups[0].label == "1990"


def test_rare_values_are_put_together():
    values = [f"v{k}" for k in range(50)]
    axis = axis_of(column(type="categorical", values=values), list(range(50)))
    assert not axis.scale
    assert len(axis.groups) == MOST_LINES
    assert axis.groups[0].label == "v49"
    assert axis.groups[-1].label == f"{50 - MOST_LINES + 1} other values"
    assert sorted(c for g in axis.groups for c in g.codes) == list(range(50))
    assert str(MOST_LINES - 1) in axis.note


SIZES = {"a": 3, "b": 4, "c": 2}
VARIANCES = {(): 4.0, (0,): 9.0, (1,): 1.0, (2,): 2.0, (0, 1): 5.0, (1, 2): 3.0}
TOTAL = 1_000.0
DRAWS = 4_000


@pytest.fixture(scope="module")
def noisy():
    """A model of a table without rows, and draws of pure noise around it."""
    domain = Domain.from_sizes(SIZES)
    rng = np.random.default_rng(11)
    reference = tuple(rng.dirichlet([2.0] * n) for n in domain.sizes)

    def model(scale):
        estimates = {}
        for tau, variance in VARIANCES.items():
            noise = np.asarray(rng.normal(0, scale * np.sqrt(variance), domain.shape(tau)))
            estimates[tau] = ResidualEstimate(decompose(noise, tau, tau), 1 / variance)
        return ReferenceModel(domain, reference, estimates)

    return model(0.0), [model(1.0) for _ in range(DRAWS)]


def within_five_errors(samples, wanted):
    """A true mean leaves five standard errors once in 1.7 million."""
    error = np.std(samples) / np.sqrt(len(samples))
    assert np.mean(samples) == pytest.approx(wanted, abs=5 * error)


@pytest.mark.parametrize("clique", [(0,), (0, 1), (1, 2)])
def test_the_error_of_measured_marginals_is_that_of_their_noise(noisy, clique):
    model, draws = noisy
    assert is_measured(model.estimates, clique, model.domain)
    found = [draw.marginal(clique) for draw in draws]
    within_five_errors([np.abs(f).sum() / TOTAL for f in found], expected_l1(model, clique, TOTAL))
    squares = [float(np.square(f).mean()) for f in found]
    within_five_errors(squares, measured_variance(model, clique))
    assert known_noise_l1(model, clique, TOTAL) == pytest.approx(expected_l1(model, clique, TOTAL))


@pytest.mark.parametrize("clique", [(0, 2), (0, 1, 2)])
def test_the_noise_of_what_is_not_measured_is_that_of_its_parts(noisy, clique):
    model, draws = noisy
    assert not is_measured(model.estimates, clique, model.domain)
    found = [np.abs(draw.marginal(clique)).sum() / TOTAL for draw in draws]
    within_five_errors(found, known_noise_l1(model, clique, TOTAL))


@pytest.mark.parametrize("codes", [1, 2, 4])
def test_the_variance_of_several_cells_together(noisy, codes):
    model, draws = noisy
    squares = [float(draw.marginal((1,))[:codes].sum() ** 2) for draw in draws]
    within_five_errors(squares, group_variance(model, 1, codes))


def test_columns_of_one_value_need_no_measurement():
    domain = Domain.from_sizes({"a": 3, "one": 1})
    estimates = {tau: ResidualEstimate(np.zeros(domain.shape(tau)), 1.0) for tau in ((), (0,))}
    assert is_measured(estimates, (0, 1), domain)
    assert list(subsets((0, 1)))[-1] not in estimates


def changed(bundle, **parts):
    """A bundle with other parts, whose manifest names the columns that they leave unconnected."""
    of = {"workload": bundle.workload, "estimates": bundle.estimates} | parts
    unconnected = unconnected_columns(of["workload"], of["estimates"])
    manifest = bundle.manifest.model_copy(update={"unconnected": unconnected})
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


def test_a_measured_combination_with_a_column_of_one_code_connects_nothing(bundle):
    singles = {c: e for c, e in bundle.estimates.items() if len(c) < 2}
    past = bundle.rounds[0].model_copy(
        update={"clique": bundle.workload.domain.clique_names((1, 3))}
    )
    found = changed(bundle, estimates=singles, rounds=(past,))
    assert "age" in found.manifest.unconnected


def test_a_page_of_a_ledger_run_names_the_place(bundle):
    content = json.loads(bundle.manifest.to_json())
    content["ledger"] = {"ledger": "ab12", "run": 7, "releases": 3, "hash": "cd34"}
    manifest = type(bundle.manifest).model_validate(content)
    assert "run 7" in release_page(replace(bundle, manifest=manifest))


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


def test_noise_is_not_told_as_the_error_of_a_table(page):
    told = page[page.index('<section aria-labelledby="combinations">') :]
    assert "Measured: how much noise the measurements hold" in told
    assert "about the noisy measurements, before a table is made of them" in told
    assert "expected L1" not in page
    assert "that were not measured together come from the model" in told
