"""Errors within groups, against evaluations of the groups by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload

DOMAIN = Domain.from_sizes({"sex": 3, "age": 6, "job": 5, "wide": 60})


def sampled(seed, rows, lost=()):
    """Jobs that the ages tell, but for those of the groups in ``lost``; nobody has sex 2."""
    rng = np.random.default_rng(seed)
    sex = (rng.random(rows) < 0.1).astype(int)
    age = rng.integers(0, 6, rows)
    job = np.where(rng.random(rows) < 0.7, age % 5, rng.integers(0, 5, rows))
    job = np.where(np.isin(sex, lost), rng.integers(0, 5, rows), job)
    return CodedTable.from_codes(DOMAIN, [sex, age, job, rng.integers(0, 60, rows)])


TRUE = sampled(1, 6_000)


def test_groups_are_compared_by_themselves_without_their_column():
    made = sampled(2, 4_000, lost=(1,))
    found = evaluate(TRUE, made, workload=2, by="sex").by
    assert (found.by, found.marginals) == ("sex", 3)
    assert [group.label for group in found.groups] == ["0", "1"]
    pairs = Workload(DOMAIN, dict.fromkeys(((1, 2), (1, 3), (2, 3)), 1.0))
    for code, group in enumerate(found.groups):
        parts = [
            CodedTable(DOMAIN, tuple(column[table.columns[0] == code] for column in table.columns))
            for table in (TRUE, made)
        ]
        assert group.rows == tuple(part.num_rows for part in parts)
        assert group.error == pytest.approx(workload_error(*parts, pairs).mean_l1)
    assert found.all.error == pytest.approx(workload_error(TRUE, made, pairs).mean_l1)


def test_the_chance_level_is_that_of_samples_of_a_groups_size():
    """Errors of fresh samples vary by less than a tenth here; of 20, their mean by 3 %."""
    errors, fresh = [], []
    for seed in range(20):
        found = evaluate(TRUE, sampled(50 + seed, 6_000), workload=2, by="sex").by
        assert not found.worse
        errors.append([group.error for group in found.groups])
        fresh.append([group.fresh for group in found.groups])
    assert np.mean(errors, 0) == pytest.approx(np.mean(fresh, 0), rel=0.08)
    assert np.mean(errors, 0)[1] > 2 * np.mean(errors, 0)[0]  # a tenth of the rows


def test_a_group_that_is_served_worse_is_named():
    evaluation = evaluate(TRUE, sampled(2, 6_000, lost=(1,)), by="sex")
    assert [group.label for group in evaluation.by.worse] == ["1"]
    found = evaluation.findings["by"]
    assert (found.grade, found.word) == ("fair", "some less accurate")
    assert "“1” (error " in found.text
    assert found.plain in evaluation.verdict.brief
    fine = evaluate(TRUE, sampled(2, 6_000), by="sex").findings["by"]
    assert (fine.grade, fine.word) == ("good", "alike")
    assert "by" not in evaluate(TRUE, TRUE).findings


def test_a_group_without_synthetic_rows_is_the_worst():
    made = sampled(2, 4_000)
    keep = made.columns[0] == 0
    made = CodedTable(DOMAIN, tuple(column[keep] for column in made.columns))
    evaluation = evaluate(TRUE, made, by="sex")
    (worst, *_) = evaluation.by.worse
    assert (worst.label, worst.rows[1], worst.error) == ("1", 0, None)
    assert "“1” (no synthetic row)" in evaluation.findings["by"].text
    content = evaluation.as_json()["by"]
    assert [group["worse"] for group in content["groups"]] == [False, True]
    assert content["groups"][1]["mean_l1"] is None
    assert content["all"]["rows"]["true"] == 6_000


@pytest.mark.parametrize("ways", [1, 2])
def test_a_workload_of_the_groups_column_only_is_not_left_empty(ways):
    small = Domain.from_sizes({"sex": 2, "age": 4})
    rng = np.random.default_rng(1)
    table = CodedTable.from_codes(small, [rng.integers(0, n, 300) for n in small.sizes])
    assert evaluate(table, table, workload=ways, by="sex").by.marginals == 1


@pytest.mark.parametrize(
    ("by", "said"),
    [("sexx", "'sexx' is not in the schema"), ("wide", "has 60 codes, more than 50")],
)
def test_columns_that_make_no_groups_are_refused(by, said):
    with pytest.raises(InputError, match=said):
        evaluate(TRUE, TRUE, by=by)
    only = CodedTable.from_codes(Domain.from_sizes({"a": 2}), [np.array([0, 1])])
    with pytest.raises(InputError, match="is the only column"):
        evaluate(only, only, by="a")
