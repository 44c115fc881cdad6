"""Rows of a release that meet a condition: in Python and as commands."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency, chisquare

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.generate.shape import Copula
from adaptive_qs.privacy.budget import GuardRailWarning
from adaptive_qs.release import release as module
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.encode import read_table

ROWS = 6_000
FALSE_ALARM = 1e-6
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "sex", "type": "categorical", "values": ["F", "M"]},
        {"name": "age", "type": "integer", "min": 0, "max": 99, "bins": 10},
        {"name": "town", "type": "categorical", "values": ["a", "b", "c"], "missing": ["?"]},
        {"name": "well", "type": "boolean"},
    ],
}
OLD = "sex = F and age >= 85"


@pytest.fixture(scope="module")
def model():
    """Fitted to rows of which some kinds are rare, and columns depend on each other."""
    rng = np.random.default_rng(0)
    age = np.minimum(rng.gamma(3, 14, size=ROWS).astype(int), 99)
    sex = np.where(rng.random(ROWS) < 0.4 + age / 300, "F", "M")
    town = np.array(["a", "b", "c", "?"])[(age // 25 + rng.integers(2, size=ROWS)) % 4]
    well = rng.random(ROWS) > age / 110
    table = pd.DataFrame({"sex": sex, "age": age, "town": town, "well": well})
    options = {"rho": 1.0, "insecure_seed": 1, "workers": 1, "beyond_limits": True}
    with pytest.warns(UserWarning, match="insecure_seed"):
        return Synthesizer(**options).fit(table, schema=SCHEMA)


@pytest.fixture
def by_chains(monkeypatch):
    """Tables that follow from chains, as those of larger domains do."""
    small = partial(module.SynthesisSettings, exact_cells=0, fit_rows=8_000)
    monkeypatch.setattr(module, "SynthesisSettings", small)


@pytest.fixture
def bundle(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model.save("r.zip")
    return Path("r.zip")


def is_old(table):
    return (table.sex == "F") & (table.age >= 85)


@pytest.mark.slow
@pytest.mark.parametrize("rules", [[], [{"rule": "amount >= items"}]])
def test_values_inside_bins_follow_other_columns(monkeypatch, rules):
    """Codes and the values of each code stay: only the rows that have them change."""
    rng = np.random.default_rng(3)
    z = rng.multivariate_normal([0, 0], [[1, 0.95], [0.95, 1]], 20_000)
    items = np.minimum(np.exp(1 + z[:, 0]), 60).round().astype(int)
    amount = np.maximum((np.exp(4 + z[:, 1] / 2)).round(2).clip(0, 499), items)
    amount[:500] = np.nan
    starts = {"min": 0, "max": 60, "bin_starts": [0, 2, 4, 8]}
    edges = {"edges": [0, 40, 80, 500], "decimals": 2, "missing": [""]}
    columns = [
        {"name": "items", "type": "integer", **starts},
        {"name": "amount", "type": "numeric", **edges},
    ]
    schema, table = {"version": 1, "columns": columns, "rules": rules}, {}
    frame = pd.DataFrame({"items": items, "amount": amount})
    release = Synthesizer(rho=5, insecure_seed=1, workers=1, beyond_limits=True)
    release = release.fit(frame, schema=schema).release_
    table["joint"] = release.draw(seed=2).table().to_pandas()
    monkeypatch.setattr(Copula, "places", lambda *_: {})
    table["alone"] = release.draw(seed=2).table().to_pandas()
    codes = [read_table(each, release.schema) for each in table.values()]
    np.testing.assert_array_equal(*([*each.columns] for each in codes))
    if not rules:  # which have values drawn again
        for name in frame:
            joint, alone = (each[name].sort_values().to_numpy() for each in table.values())
            np.testing.assert_array_equal(joint, alone)
    off = {k: abs(each.corr() - frame.corr()).iloc[0, 1] for k, each in table.items()}
    assert off["joint"] < off["alone"] / 2


def test_a_conditional_sample_agrees_with_the_same_rows_of_a_large_table(model):
    """Every pair of columns; samples that are refined differ by less than independent ones."""
    large = model.sample(60_000, seed=2)
    rows, made = large[is_old(large)], model.sample(2_000, seed=3, where=OLD)
    assert len(rows) > 500
    assert is_old(made).all()
    for pair in (["age", "town"], ["age", "well"], ["town", "well"]):
        tables = [table.fillna("?").groupby(pair).size() for table in (rows, made)]
        counts = pd.concat(tables, axis=1).fillna(0).to_numpy()
        frequent = counts[counts.sum(axis=1) >= 10]
        assert chi2_contingency(frequent).pvalue > FALSE_ALARM
    share = model.release_.draw(10, 1, where=OLD).share
    assert len(rows) / len(large) == pytest.approx(share, abs=5 * (share / len(large)) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "samples"), [(1, 120), (5, 50)])
def test_samples_of_few_rows_have_each_row_at_its_chance(model, num_rows, samples):
    """The counts nearest to what is expected of one row would be a frequent cell."""
    few = pd.concat([model.sample(num_rows, seed=seed) for seed in range(samples)])
    tables = [
        each.groupby(["sex", "town"], dropna=False).size()
        for each in (few, model.sample(60_000, seed=2))
    ]
    counts, expected = pd.concat(tables, axis=1).fillna(0).to_numpy().T
    assert (expected > 60_000 * 5 / len(few)).all()
    assert chisquare(counts, expected * len(few) / 60_000).pvalue > FALSE_ALARM
    assert set(few.well.unique()) == {True, False}


@pytest.mark.slow
def test_chains_and_cells_give_the_same_rows(model, monkeypatch):
    """By the exact fit and by chains, which are fitted apart: alike to within a few standard
    errors, and in every row as asked for."""
    where = "(age < 23 and not sex = F) or town is missing"
    exact = model.sample(4_000, seed=1, where=where)
    small = partial(module.SynthesisSettings, exact_cells=0, fit_rows=8_000)
    monkeypatch.setattr(module, "SynthesisSettings", small)
    chains = model.sample(4_000, seed=1, where=where)
    for table in (exact, chains):
        assert (((table.age < 23) & (table.sex != "F")) | table.town.isna()).all()
    shares = [table.town.isna().mean() for table in (exact, chains)]
    assert shares[0] == pytest.approx(shares[1], abs=0.05)


def test_the_number_of_rows_is_that_of_the_condition(model):
    drawing = model.release_.draw(seed=1, where=OLD)
    assert drawing.rows == round(model.release_.num_rows * drawing.share)
    assert drawing.coded().num_rows == drawing.rows


@pytest.mark.slow
def test_the_seed_decides_and_the_workers_do_not(model):
    made = [
        model.release_.draw(50, seed, workers, where=OLD).table()
        for seed, workers in ((1, 1), (1, 2), (2, 1))
    ]
    assert made[0].equals(made[1])
    assert not made[0].equals(made[2])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"where": "sex = X"}, "neither a column nor a value of 'sex'"),
        ({"where": "sex = F and sex = M"}, "no row can meet"),
        ({"where": "(sex = F or well = yes) and town = a"}, None),
        ({"where": "sex = F", "num_rows": 0}, "the number of rows is 0"),
    ],
)
def test_what_cannot_be_had_is_said_in_a_line(model, asked, said):
    if said is None:
        assert len(model.sample(20, seed=1, **asked)) == 20
        return
    with pytest.raises(InputError, match=r"\A[^\n]+\Z") as caught:
        model.sample(**asked)
    assert said in str(caught.value)


RULED = {
    **SCHEMA,
    "rules": [
        "age < 15 -> sex = F",
        "town = a or town is missing or age >= 23",
        "never sex = M and well = no",
    ],
}


@pytest.fixture(scope="module")
def ruled(model):
    """Such rows as meet some rules, under these."""
    rows = model.sample(5_000, seed=9)
    rows = rows[~breaks_rules(rows)]
    options = {"rho": 1.0, "insecure_seed": 1, "workers": 1, "beyond_limits": True}
    with pytest.warns(UserWarning, match="insecure_seed"):
        return Synthesizer(**options).fit(rows, schema=RULED)


def breaks_rules(table):
    young = (table.age < 15) & (table.sex == "M")
    away = table.town.isin(["b", "c"]) & (table.age < 23)
    return young | away | ((table.sex == "M") & ~table.well.astype(bool))


@pytest.mark.parametrize("cells", [0, 2**18])
def test_steered_rows_meet_the_rules_of_the_schema(ruled, monkeypatch, cells):
    small = partial(module.SynthesisSettings, exact_cells=cells, fit_rows=4_000)
    monkeypatch.setattr(module, "SynthesisSettings", small)
    made = ruled.sample(600, seed=1, where="age < 27 and age >= 12")
    assert not breaks_rules(made).any()
    assert made.age.between(12, 26).all()


@pytest.mark.parametrize(
    "where", ["sex = M and well = no", "sex = M and age < 10", "sex = M and age < 14"]
)
def test_a_condition_that_contradicts_a_rule_is_refused(ruled, where):
    with pytest.raises(InputError, match=r"\A[^\n]*the rules of the schema[^\n]*\Z"):
        ruled.sample(10, seed=1, where=where)


def test_too_many_parts_are_refused(model, monkeypatch):
    monkeypatch.setattr("adaptive_qs.generate.linked.MOST_BOXES", 1)
    with pytest.raises(InputError, match="2 parts, and 1 is the most"):
        model.sample(10, where="sex = F or town = a")


@pytest.mark.usefixtures("by_chains")
def test_rows_that_the_release_hardly_has_come_with_a_warning(model):
    with pytest.warns(GuardRailWarning, match="less than one row of the"):
        made = model.sample(20, seed=1, where="age = 99 and sex = M and town = a and well = yes")
    assert (made.age == 99).all()


@pytest.mark.slow
@pytest.mark.usefixtures("bundle")
def test_the_command_says_what_it_drew_and_the_sidecar_draws_it_again(capsys):
    options = ["--rows", "60", "--seed", "4", "--out", "old.csv"]
    assert main(["sample", "r.zip", "--where", OLD, *options]) == 0
    said = capsys.readouterr()
    assert f"where    {OLD} (" in said.out
    made = pd.read_csv("old.csv", na_values=["?"])
    assert is_old(made).all()
    sampling = json.loads(Path("old.csv.manifest.json").read_text())["sampling"]
    assert sampling["where"] == OLD
    again = Synthesizer.load("r.zip").sample(sampling["rows"], sampling["seed"], OLD)
    pd.testing.assert_frame_equal(again, made, check_dtype=False)


@pytest.mark.usefixtures("bundle")
def test_the_command_gives_the_share_and_refuses_in_a_line(capsys):
    assert main(["sample", "r.zip", "--where", OLD, "--out", "a.csv", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert 0 < said["share"] < 0.1
    assert said["rows"] == len(pd.read_csv("a.csv"))
    assert main(["sample", "r.zip", "--where", "age > 120", "--out", "b.csv"]) == 2
    told = capsys.readouterr().err
    assert [line for line in told.splitlines() if line.startswith("error")] == [
        "error: no row can meet the condition 'age > 120'; age has 0 to 99 in 10 bins"
    ]
    assert not Path("b.csv").exists()
