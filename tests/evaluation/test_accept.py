"""Acceptance criteria: each value against pandas, and the exit code."""

from __future__ import annotations

import json
import random
import runpy

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.evaluation import evaluate

from ..docs.snippets import ROOT

EXAMPLE = ROOT / "docs" / "example"
SCHEMA, CRITERIA = EXAMPLE / "births.json", EXAMPLE / "criteria.json"


def births(seed, rows=4_000):
    """The table of the example."""
    example = runpy.run_path(str(EXAMPLE / "make_births.py"))
    random.seed(seed)
    return pd.DataFrame([example["birth"]() for _ in range(rows)], columns=example["COLUMNS"])


TRUE, MADE = births(1), births(2)


def found(made, *criteria, true=TRUE):
    """The criteria that are checked."""
    content = {"version": 1, "criteria": [{"limit": 0.5, **each} for each in criteria]}
    return evaluate(true, made, SCHEMA, 1, accept=content).criteria


def test_values_are_those_of_pandas():
    sex, cells, ratio, means, line, rules, unique = found(
        MADE,
        {"measure": "count_difference", "ways": 1, "limit": 0.001},
        {"measure": "count_difference", "ways": 2},
        {"measure": "count_ratio", "ways": 1, "least_rows": 100},
        {"measure": "group_means", "number": "weight", "by": "parity"},
        {"measure": "regression", "number": "weight", "columns": ["weeks", "sex"]},
        {"measure": "rules"},
        {"measure": "unique_matches"},
    )
    bins = [t.assign(weight=t.weight // 100) for t in (TRUE, MADE)]

    def shares(names):
        both = (t.groupby(names).size() / len(t) for t in bins)
        return pd.concat(both, axis=1).fillna(0)

    def differences(names):
        return shares(names).diff(axis=1)[1].abs().max()

    columns = list(TRUE)
    assert sex.value == pytest.approx(max(differences([c]) for c in columns))
    assert not sex.met
    pairs = [[a, b] for k, a in enumerate(columns) for b in columns[k + 1 :]]
    assert cells.value == pytest.approx(max(map(differences, pairs)))
    ratios = [s[s[0] >= 100 / len(TRUE)] for s in (shares([c]) for c in columns)]
    assert ratio.value == pytest.approx(max(np.exp(abs(np.log(r[1] / r[0]))).max() for r in ratios))
    groups = TRUE.parity.value_counts()
    groups = groups.index[groups >= 10]
    both = [t.groupby("parity").weight.mean()[groups] for t in (TRUE, MADE)]
    assert means.value == pytest.approx((both[1] - both[0]).abs().max())
    fitted = []
    for table in (TRUE, MADE):
        x, y = ((table[n] - TRUE[n].mean()) / TRUE[n].std(ddof=0) for n in ("weeks", "weight"))
        other = (table.sex == TRUE.sex.value_counts().index[1]).astype(float)
        design = np.column_stack([np.ones(len(table)), x, other])
        fitted.append(np.linalg.solve(design.T @ design, design.T @ y)[1:])
    assert line.value == pytest.approx(abs(fitted[1] - fitted[0]).max())
    assert (rules.value, rules.met) == (0, True)
    once = bins[0].groupby(columns).size()
    once = set(once.index[once == 1])
    assert unique.value == np.mean([row in once for row in bins[1].itertuples(index=False)])


def test_propensity_is_near_a_guess_for_other_rows_and_near_one_for_others():
    propensity = {"measure": "propensity"}
    (same,), (far,) = found(MADE, propensity), found(MADE.assign(parity=8), propensity)
    assert abs(same.value - 0.5) < 4 / np.sqrt(12 * 2_000)  # of a rank statistic
    assert far.value > 0.9
    assert not far.met


def test_a_missing_cell_is_infinitely_far():
    (ratio,) = found(MADE[MADE.sex == "male"], {"measure": "count_ratio", "ways": 1})
    assert (ratio.value, ratio.met, ratio.where) == (np.inf, False, "sex = female")
    criterion = {"measure": "group_means", "number": "weight", "by": "sex"}
    (means,) = found(MADE[MADE.sex == "male"], criterion)
    assert (means.value, means.where) == (np.inf, "sex = female")


def test_the_exit_code_says_whether_all_are_met(tmp_path, capsys):
    TRUE.to_csv(tmp_path / "t.csv", index=False)
    MADE.assign(weight=MADE.weight // 2 // 10 * 10 + 300).to_csv(tmp_path / "far.csv", index=False)
    command = ["evaluate", str(tmp_path / "t.csv"), "--schema", str(SCHEMA), "--ways", "1"]
    command += ["--disclose", "sex, month", "--accept", str(CRITERIA)]
    assert main([*command, str(tmp_path / "far.csv"), "--report", str(tmp_path / "r.html")]) == 5
    said = capsys.readouterr().out
    assert "Acceptance criteria" in said
    assert "NOT MET" in said
    assert "Not met, " in said.split("Whole rows")[0]
    page = (tmp_path / "r.html").read_text()
    assert "NOT MET" in page
    assert "Rows in combinations of fewer than k rows" in page
    loose = json.loads(CRITERIA.read_text())
    loose["criteria"] = [{**each, "limit": 1e6} for each in loose["criteria"]]
    (tmp_path / "loose.json").write_text(json.dumps(loose))
    command[-1] = str(tmp_path / "loose.json")
    MADE.to_csv(tmp_path / "made.csv", index=False)
    assert main([*command, str(tmp_path / "made.csv"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["disclosure"]["guesses"][0].keys() >= {"column", "synthetic", "control"}
    printed = printed["criteria"]
    assert len(printed) == len(loose["criteria"])
    assert all(each["met"] and each["limit"] == 1e6 for each in printed)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ({"measure": "count_ratio", "ways": 7}, "criterion 1: more ways than columns"),
        ({"measure": "group_means", "number": "weight", "by": "day"}, "no column 'day'"),
        ({"measure": "group_means", "number": "sex", "by": "month"}, "no number has two groups"),
        ({"measure": "regression", "number": "sex", "columns": ["month"]}, "no number or date"),
        ({"measure": "propensity", "limit": -1.0}, "must be at least 0"),
        ({"measure": "speed"}, "measure speed is unknown: use one of"),
    ],
)
def test_other_criteria_are_refused(criterion, message):
    with pytest.raises(InputError, match=message) as refused:
        found(MADE, criterion)
    assert "\n" not in str(refused.value)
