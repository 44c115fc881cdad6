"""Numbers given to public functions: NumPy's are numbers, booleans and text are refused."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import adaptive_qs
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

SCHEMA = Schema.parse({"a": 3, "b": 2})
FRAME = pd.DataFrame({"a": [0, 1, 2] * 40, "b": [0, 1] * 60})
NUMBERS = {
    "epsilon": np.float32(1),
    "delta": np.float64(1e-6),
    "workload": np.int64(2),
    "learning_share": np.float32(0.5),
    "max_memory": np.int64(2**31),
    "insecure_seed": np.uint8(3),
}


@pytest.fixture(scope="module")
def fitted():
    return Synthesizer(rho=10, workers=1).fit(FRAME, schema=SCHEMA)


def test_numbers_of_numpy_are_numbers_when_a_table_is_made():
    model = Synthesizer(**NUMBERS, workers=np.int16(1)).fit(FRAME, schema=SCHEMA)
    plain = {name: value.item() for name, value in NUMBERS.items()}
    same = Synthesizer(**plain, workers=1).fit(FRAME, schema=SCHEMA)
    assert (model.epsilon_, model.delta_, model.rho_) == (1.0, 1e-6, same.rho_)
    made, again = model.sample(np.int64(3), seed=np.int32(1)), same.sample(3, seed=1)
    pd.testing.assert_frame_equal(made, again)
    assert model.release_.sample(np.int64(3), np.int64(1), np.int64(1)).num_rows == 3


def test_numbers_of_numpy_are_numbers_when_queries_are_answered():
    given = {**NUMBERS, "workers": np.int64(1), "gap": np.float32(0.5)}
    answers = adaptive_qs.answer(FRAME, SCHEMA, **given)
    assert len(answers.to_pandas(np.float64(0.9))) == 6
    plan = adaptive_qs.plan(SCHEMA, np.arange(1, 3), cost=np.int64(1))
    assert plan.queries == 3 + 2 + 6
    assert adaptive_qs.plan(SCHEMA, cost=Fraction(1, 2)).target.cost == 0.5


def test_schemas_domains_and_workloads_take_numbers_of_numpy():
    domain = Domain.from_sizes({"a": np.int64(3), "b": np.uint8(2)})
    assert domain == SCHEMA.domain() == Schema.parse({"a": np.int64(3), "b": np.int8(2)}).domain()
    assert all(type(size) is int for size in domain.sizes)
    column = {"name": "a", "type": "integer", "min": np.int64(0), "max": np.int64(2)}
    assert Schema.parse({"version": 1, "columns": [column]}).domain().sizes == (3,)
    assert len(Workload.all_ways(domain, np.int64(1))) == 2
    spec = {"version": 1, "parts": [{"ways": [np.int64(2)], "weight": np.float32(2)}]}
    assert Synthesizer(rho=1, workload=spec, workers=1).fit(FRAME, schema=SCHEMA)
    assert adaptive_qs.plan(SCHEMA, spec).queries == 6


BAD = [True, "two", np.bool_(True), np.array([1.5, 2.0]), FRAME, 1j]


@pytest.mark.parametrize("bad", BAD, ids=[type(bad).__name__ for bad in BAD])
@pytest.mark.parametrize("name", [*NUMBERS, "workers", "rho"])
def test_what_is_no_number_is_refused_in_one_line(name, bad, monkeypatch):
    monkeypatch.setattr("adaptive_qs.table.encode.read_rows", None)
    given = {name: bad} if name in ("epsilon", "rho") else {"rho": 1, name: bad}
    with pytest.raises(InputError) as caught:
        Synthesizer(**given).fit(FRAME, schema=SCHEMA)
    said = str(caught.value)
    word = "two" if name == "workload" and isinstance(bad, str) else name.split("_")[0]
    assert word in said
    assert "\n" not in said
    assert len(said) < 200


def test_numbers_above_the_largest_double_are_refused():
    for name in ("epsilon", "rho", "delta", "learning_share"):
        given = {name: 10**400} if name in ("epsilon", "rho") else {"rho": 1, name: 10**400}
        with pytest.raises(InputError, match=name.split("_")[0]):
            Synthesizer(**given).fit(FRAME, schema=SCHEMA)


def test_a_table_in_the_place_of_a_parameter_is_not_shown():
    private = pd.DataFrame({"a": ["canary"] * 3})
    for wrong in (private, list(private.a.items()), private.a.to_numpy()):
        for given in (
            {"workload": wrong},
            {"epsilon": wrong},
            {"workers": wrong},
            {"rows_per_person": wrong},
        ):
            with pytest.raises(InputError) as caught:
                Synthesizer(**{"epsilon": 1, **given}).fit(FRAME, schema=SCHEMA)
            assert "canary" not in str(caught.value)


@pytest.mark.parametrize("bad", [True, "3", 3.0, np.float64(3), 0, np.int64(-1)])
def test_rows_and_seeds_of_a_sample_are_whole_numbers(fitted, bad):
    with pytest.raises(InputError, match=r"number of rows is .*. Use a positive integer"):
        fitted.sample(bad)
    with pytest.raises(InputError, match=r"workers is .*. Use a positive integer"):
        fitted.release_.sample(3, workers=bad)
    if bad != 0 or isinstance(bad, bool):
        with pytest.raises(InputError, match=r"seed is .*. Use a non-negative integer"):
            fitted.sample(3, seed=bad)


@pytest.mark.parametrize("name", ["gap", "workers", "cost", "epsilon", "learning_share"])
@pytest.mark.parametrize("bad", [True, "0.5", np.bool_(False)])
def test_what_is_no_number_is_refused_by_plan_and_answer(name, bad):
    given = {name: bad} if name in ("cost", "epsilon") else {"rho": 1, name: bad}
    words = rf"{name.replace('_', '-')} is .*\. Use"
    for ask in (adaptive_qs.plan, lambda *a, **k: adaptive_qs.answer(FRAME, *a, **k)):
        with pytest.raises(InputError, match=words):
            ask(SCHEMA, **given)


@pytest.mark.parametrize("bad", [True, "0.9", 95, np.float64(1)])
def test_a_confidence_is_a_number_between_0_and_1(bad):
    answers = adaptive_qs.answer(FRAME, SCHEMA, rho=1)
    with pytest.raises(InputError, match="confidence is"):
        answers.to_arrow(bad)


def test_sizes_and_weights_that_are_no_numbers_are_refused():
    for bad in (True, "3", 2.5, 0):
        with pytest.raises(InputError, match=r"size .*. Use a positive integer"):
            Domain.from_sizes({"a": bad})
        with pytest.raises(InputError, match="schema"):
            Schema.parse({"a": bad})
    for bad in (True, "3", float("nan")):
        with pytest.raises(InputError, match="weight"):
            Workload(SCHEMA.domain(), {(0,): bad})


def test_messages_show_numbers_of_numpy_as_numbers():
    with pytest.raises(InputError, match=r"^epsilon is -1\.0\. "):
        Synthesizer(epsilon=np.float64(-1)).fit(FRAME, schema=SCHEMA)
    with pytest.raises(InputError, match=r"^workers is 0\. "):
        Synthesizer(rho=1, workers=np.int64(0)).fit(FRAME, schema=SCHEMA)


def test_coded_tables_need_integers():
    domain = Domain.from_sizes({"a": 2})
    with pytest.raises(InputError, match="not integers"):
        CodedTable.from_codes(domain, [np.array([0.0, 1.0])])


@pytest.mark.parametrize("bad", [1, None, FRAME, ["product"]], ids=lambda bad: type(bad).__name__)
def test_names_that_are_no_text_are_refused(bad):
    with pytest.raises(InputError, match="levels is"):
        Synthesizer(rho=1, levels=bad).fit(FRAME, schema=SCHEMA)
    with pytest.raises(InputError, match="mechanism is"):
        adaptive_qs.plan(SCHEMA, mechanism=bad)
