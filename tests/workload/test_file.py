"""Workload files: what they mean, and one line for everything wrong with them."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.file import WorkloadFile, load_workload
from adaptive_qs.workload.json_schema import PUBLISHED, render
from adaptive_qs.workload.workload import Workload

DOMAIN = Domain.from_sizes({"age": 5, "sex": 2, "job": 3, "one": 1})


def write(tmp_path, content):
    path = tmp_path / "w.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def parts(*parts):
    return {"version": 1, "parts": list(parts)}


def test_parts_become_weighted_cliques(tmp_path):
    path = write(
        tmp_path,
        parts(
            {"ways": [1, 4]},
            {"attributes": [["sex", "age"], ["job"]], "queries": "marginal", "weight": 2.5},
            {"attributes": [["age", "sex"]], "queries": {"age": "marginal", "sex": "marginal"}},
        ),
    )
    weights = {(0,): 1, (1,): 1, (2,): 3.5, (3,): 1, (0, 1, 2, 3): 1, (0, 1): 3.5}
    assert load_workload(path, DOMAIN).weights == weights


def test_ways_are_all_sets_of_that_many_attributes(tmp_path):
    path = write(tmp_path, parts({"ways": [3]}))
    assert load_workload(path, DOMAIN) == Workload.all_ways(DOMAIN, 3)


BAD = {
    "no parts": (parts(), "is empty"),
    "no ways": (parts({"ways": []}), "part 1: ways: is empty"),
    "no sets": (parts({"ways": [1]}, {"attributes": []}), "part 2: attributes: is empty"),
    "empty set": (parts({"attributes": [[]]}), "part 1: attributes: is empty"),
    "neither": (parts({"weight": 1}), 'part 1: give either "ways" or "attributes"'),
    "both": (parts({"ways": [1], "attributes": [["age"]]}), "part 1: give either"),
    "unknown": (parts({"ways": [1]}, {"attributes": [["agee"]]}), "part 2: attribute 'agee'"),
    "twice": (parts({"attributes": [["age", "age"]]}), "part 1"),
    "zero ways": (parts({"ways": [0]}), "part 1: ways"),
    "many ways": (parts({"ways": [5]}), "part 1: ways is 5: give a number from 1 to 4"),
    "weight 0": (parts({"ways": [1], "weight": 0}), "part 1: weight"),
    "weight -1": (parts({"ways": [1], "weight": -1.5}), "part 1: weight"),
    "weight NaN": (
        '{"version": 1, "parts": [{"ways": [1], "weight": NaN}]}',
        "NaN is not a number",
    ),
    "weight text": (parts({"ways": [1], "weight": "2"}), "part 1: weight"),
    "extra key": (parts({"ways": [1], "wieght": 2}), "part 1: wieght"),
    "family": (
        parts({"ways": [1], "queries": "range"}),
        "part 1: 'range' queries are for plan and answer: here use 'marginal'",
    ),
    "families": (
        parts({"attributes": [["age", "sex"]], "queries": {"age": "prefix", "sex": "marginal"}}),
        "part 1: 'prefix' queries are for plan and answer: here use 'marginal'",
    ),
    "family of": (parts({"ways": [1], "queries": {"agee": "marginal"}}), "attribute 'agee'"),
    "no family": (parts({"ways": [1], "queries": "sums"}), "part 1: queries"),
    "version": ({"version": 2, "parts": [{"ways": [1]}]}, "version"),
    "array": ([1, 2], "w.json"),
    "not JSON": ("{", "line 1: not valid JSON"),
    "key twice": ('{"version": 1, "version": 1, "parts": []}', "occurs twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(case, tmp_path):
    content, hint = BAD[case]
    with pytest.raises(WorkloadError) as caught:
        load_workload(write(tmp_path, content), DOMAIN)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "w.json"))
    assert hint in message
    assert "\n" not in message


def test_unreadable_files(tmp_path):
    with pytest.raises(WorkloadError, match="no such file"):
        load_workload(tmp_path / "none.json", DOMAIN)
    (tmp_path / "w.json").write_bytes(b"\xff\xfe")
    with pytest.raises(WorkloadError, match="UTF-8"):
        load_workload(tmp_path / "w.json", DOMAIN)


def test_too_many_marginals_are_a_matter_of_resources(tmp_path):
    wide = Domain.from_sizes({f"a{i}": 2 for i in range(60)})
    with pytest.raises(ResourceExceeded, match="part 1"):
        load_workload(write(tmp_path, parts({"ways": [30]})), wide)


cliques = st.sets(st.integers(0, 3), min_size=1).map(lambda c: tuple(sorted(c)))


@given(st.dictionaries(cliques, st.floats(1e-6, 1e6), min_size=1))
def test_a_workload_survives_its_file(weights):
    workload = Workload(DOMAIN, weights)
    content = json.loads(WorkloadFile.of(workload).model_dump_json())
    again = WorkloadFile.parse(content).workload(DOMAIN)
    assert list(again.weights.items()) == list(workload.weights.items())
    jsonschema.validate(content, json.loads(render()))


def test_published_schema_is_current():
    assert PUBLISHED.read_text(encoding="utf-8") == render()


@pytest.mark.parametrize(
    "case", ["extra key", "weight 0", "no family", "version", "no parts", "empty set"]
)
def test_published_schema_refuses_what_the_reader_refuses(case):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(BAD[case][0], json.loads(render()))


def test_sets_that_are_asked_for_again_and_again_count_each_time(tmp_path):
    domain = Domain.from_sizes({f"a{i}": 2 for i in range(20)})
    path = write(tmp_path, parts(*[{"ways": [6]}] * 1_000))
    with pytest.raises(ResourceExceeded, match="part 26: brings the marginals to 1,007,760"):
        load_workload(path, domain)
