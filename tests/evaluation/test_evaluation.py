"""All parts together, as Python users call them, and as JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import adaptive_qs
from adaptive_qs.data.schema import Schema
from adaptive_qs.domain import Domain
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.as_json import evaluation_json
from adaptive_qs.evaluation.contingency import BATCH, in_batches
from adaptive_qs.evaluation.evaluation import compare
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.evaluation.pair import TablePair
from adaptive_qs.evaluation.utility.settings import UtilitySettings
from adaptive_qs.workload.workload import Workload

from .tables import table

SIZES = {"a": 4, "b": 3, "c": 6, "d": 2}
SCHEMA = Schema.parse(SIZES)
DOMAIN = SCHEMA.domain()
PAIR = TablePair(table(DOMAIN, 300, 1), table(DOMAIN, 200, 2))


def frame(rows, seed):
    return pd.DataFrame(
        {name: codes.astype(int) for name, codes in zip(SIZES, table(DOMAIN, rows, seed).columns)}
    )


def test_data_frames_are_compared_in_one_line():
    workload = Workload.all_ways(DOMAIN, 2)
    found = adaptive_qs.evaluate(frame(300, 1), frame(200, 2), SCHEMA, workload, rules=["a <= c"])
    assert isinstance(found, adaptive_qs.Evaluation)
    expected = workload_error(PAIR.true, PAIR.synthetic, Workload.all_ways(DOMAIN, 2))
    assert found.workload == expected
    assert [check.rule for check in found.rules] == ["a <= c"]


@pytest.mark.parametrize("ways", [1, 2, 3])
def test_marginals_that_are_also_in_the_workload_give_the_same_total_variation(ways):
    alone, shared = (compare(PAIR, SCHEMA, Workload.all_ways(DOMAIN, k)) for k in (4, ways))
    assert alone.total_variation == shared.total_variation
    assert shared.total_variation[ways - 1].mean == pytest.approx(shared.workload.mean_l1 / 2)


def test_every_marginal_is_counted_once():
    steps = []
    compare(
        PAIR,
        SCHEMA,
        Workload.all_ways(DOMAIN, [2, 4]),
        progress=lambda phase, done, total: steps.append((phase, done, total)),
    )
    assert steps == [("evaluate", 15, 15), ("pairs", 6, 6)]


def test_equal_tables_differ_in_nothing():
    pair = TablePair(PAIR.true, PAIR.true)
    found = compare(pair, SCHEMA, Workload.all_ways(DOMAIN, 3))
    assert (found.workload.max_l1, found.workload.rmse) == (0, 0)
    assert {part.max for part in found.total_variation} == {0}
    assert not found.association.cramers_v_difference.any()
    assert (found.rows.exact_matches, found.unseen.share) == (1, 0)


def test_other_columns_are_refused():
    other = Schema.parse({"a": 4, "b": 3})
    with pytest.raises(DataError, match="different attributes"):
        compare(PAIR, other, Workload.all_ways(DOMAIN, 1))
    with pytest.raises(DataError, match="different attributes"):
        compare(PAIR, SCHEMA, Workload.all_ways(other.domain(), 1))
    with pytest.raises(DataError, match="different attributes"):
        TablePair(PAIR.true, table(Domain.from_sizes({"a": 4}), 5, 1))


def test_a_target_that_cannot_be_predicted_is_an_error_only_where_it_was_asked_for():
    constant = TablePair(*(table(Domain.from_sizes({"a": 1, "b": 1}), 50, k) for k in (1, 2)))
    schema = Schema.parse({"a": 1, "b": 1})
    workload = Workload.all_ways(schema.domain(), 1)
    found = compare(constant, schema, workload, utility=UtilitySettings(repeats=1))
    assert found.utility is None
    assert any(text.startswith("no models: ") for text in found.limitations)
    with pytest.raises(InputError):
        compare(constant, schema, workload, utility=UtilitySettings(target="a", repeats=1))


def test_models_are_tested_on_the_control_table():
    control = table(DOMAIN, 90, 3)
    settings = UtilitySettings(target="d", repeats=1)
    found = compare(PAIR, SCHEMA, Workload.all_ways(DOMAIN, 1), utility=settings, control=control)
    assert found.utility.test_rows == 90
    assert found.membership.promise is None


def test_the_json_form_has_plain_finite_values():
    found = compare(PAIR, SCHEMA, Workload.all_ways(DOMAIN, 1))
    rows = replace(found.rows, exact_matches=math.nan, repeated=np.float64(math.inf))
    content = evaluation_json(replace(found, rows=rows), ["close"])
    assert (content["verdict"], content["query_parts"]) == (["close"], [])
    assert (content["rows"]["exact_matches"], content["rows"]["repeated"]) == (None, None)
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_work_ends_as_soon_as_its_progress_is_interrupted():
    class Stop(BaseException):
        pass

    done = []

    def stop(*_):
        raise Stop

    with pytest.raises(Stop):
        in_batches(lambda batch: [done.append(i) for i in batch], range(BATCH * 400), 1, stop)
    assert len(done) < BATCH * 400
