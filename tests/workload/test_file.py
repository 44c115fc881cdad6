"""Workload files: what they mean, and one line for everything wrong with them."""

from __future__ import annotations

import json
import math
import os
from itertools import combinations

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload import file as workload_file
from adaptive_qs.workload import matrices
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Range
from adaptive_qs.workload.families import Random
from adaptive_qs.workload.file import (
    WorkloadFile,
    all_ways_queries,
    other_queries,
    resolve_queries,
    resolve_workload,
    workload_digest,
)
from adaptive_qs.workload.matrices import CustomAxis
from adaptive_qs.workload.workload import Workload
from scripts.make_reference import PUBLISHED, render

from ..published import validate_workload

DOMAIN = Domain.from_sizes({"age": 5, "sex": 2, "job": 3, "one": 1})


def write(folder, *parts):
    """A file with these parts, or with this text or content."""
    content = parts[0] if len(parts) == 1 and not is_part(parts[0]) else of_parts(*parts)
    path = folder / "w.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def is_part(content):
    return isinstance(content, dict) and "version" not in content


def of_parts(*parts):
    return {"version": 1, "parts": list(parts)}


def refusal(call, place):
    """The one line in which a file is refused, after the place that it names."""
    with pytest.raises(WorkloadError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(place)
    assert "\n" not in message
    return message


def test_parts_become_weighted_cliques(tmp_path):
    path = write(
        tmp_path,
        {"ways": [1, 4]},
        {"attributes": [["sex", "age"], ["job"]], "queries": "marginal", "weight": 2.5},
        {"attributes": [["age", "sex"]], "queries": {"age": "marginal", "sex": "marginal"}},
    )
    weights = {(0,): 1, (1,): 1, (2,): 3.5, (3,): 1, (0, 1, 2, 3): 1, (0, 1): 3.5}
    assert resolve_workload(path, DOMAIN).weights == weights
    path = write(tmp_path, {"ways": [3]})
    assert resolve_workload(path, DOMAIN) == Workload.all_ways(DOMAIN, 3)


BAD = {
    "no parts": (of_parts(), "parts: must not be empty"),
    "no ways": (of_parts({"ways": []}), "part 1: ways: must not be empty"),
    "no sets": (
        of_parts({"ways": [1]}, {"attributes": []}),
        "part 2: attributes: must not be empty",
    ),
    "empty set": (of_parts({"attributes": [[]]}), "part 1: attributes: must not be empty"),
    "neither": (of_parts({"weight": 1}), 'part 1: use either "ways" or "attributes"'),
    "both": (of_parts({"ways": [1], "attributes": [["age"]]}), "part 1: use either"),
    "unknown": (of_parts({"ways": [1]}, {"attributes": [["agee"]]}), "part 2: attribute 'agee'"),
    "twice": (of_parts({"attributes": [["age", "age"]]}), "part 1"),
    "zero ways": (of_parts({"ways": [0]}), "part 1: ways"),
    "many ways": (of_parts({"ways": [5]}), "part 1: ways is 5. Use a number from 1 to 4"),
    "weight 0": (of_parts({"ways": [1], "weight": 0}), "part 1: weight"),
    "weight -1": (of_parts({"ways": [1], "weight": -1.5}), "part 1: weight"),
    "weight NaN": (
        '{"version": 1, "parts": [{"ways": [1], "weight": NaN}]}',
        "NaN is not a number",
    ),
    "weight text": (of_parts({"ways": [1], "weight": "2"}), "part 1: weight"),
    "extra key": (of_parts({"ways": [1], "wieght": 2}), "part 1: wieght"),
    "family of": (of_parts({"ways": [1], "queries": {"agee": "marginal"}}), "attribute 'agee'"),
    "no family": (of_parts({"ways": [1], "queries": "sums"}), "part 1: queries"),
    "version": ({"version": 2, "parts": [{"ways": [1]}]}, "version"),
    "array": ([1, 2], "w.json"),
    "not JSON": ("{", "not valid JSON (line 1"),
    "key twice": ('{"version": 1, "version": 1, "parts": []}', "occurs twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(case, tmp_path):
    content, hint = BAD[case]
    path = write(tmp_path, content)
    assert hint in refusal(lambda: resolve_workload(path, DOMAIN), str(path))


def test_unreadable_files(tmp_path):
    with pytest.raises(WorkloadError, match="no such file"):
        resolve_workload(tmp_path / "none.json", DOMAIN)
    (tmp_path / "w.json").write_bytes(b"\xff\xfe")
    with pytest.raises(WorkloadError, match="UTF-8"):
        resolve_workload(tmp_path / "w.json", DOMAIN)


def test_too_many_marginals_are_a_matter_of_resources(tmp_path, monkeypatch):
    """Those that are asked for again and again count each time."""
    monkeypatch.setattr("adaptive_qs.workload.file.MAX_CLIQUES", 100_000)
    for size, parts, message in [
        (60, [{"ways": [30]}], "part 1"),
        (20, [{"ways": [6]}] * 1_000, "part 3: brings the marginals to 116,280"),
    ]:
        domain = Domain.from_sizes({f"a{i}": 2 for i in range(size)})
        with pytest.raises(ResourceExceeded, match=message):
            resolve_workload(write(tmp_path, *parts), domain)


cliques = st.sets(st.integers(0, 3), min_size=1).map(lambda c: tuple(sorted(c)))


@given(st.dictionaries(cliques, st.floats(1e-6, 1e6), min_size=1))
def test_a_workload_survives_its_file(weights):
    workload = Workload(DOMAIN, weights)
    content = json.loads(WorkloadFile.of(workload).model_dump_json())
    again = WorkloadFile.parse(content).workload(DOMAIN)
    assert list(again.weights.items()) == list(workload.weights.items())
    validate_workload(content)


def test_published_schema_is_current():
    assert PUBLISHED["workload"].read_text(encoding="utf-8") == render("workload")


# Workload files of any queries: what they mean, and one line for everything wrong with them.

WIDER = Domain(
    (
        Attribute("age", 5),
        Attribute("sex", 2, ordered=False),
        Attribute("hours", 3),
        Attribute("family", 4),
        Attribute("p", 1),
    )
)
AGE, SEX, HOURS, FAMILY, P = range(5)


def read(folder, *parts):
    path = write(folder, *parts)
    validate_workload(json.loads(path.read_text()))
    return resolve_queries(path, WIDER)


def asked(workload):
    """Every set with its factors and weight, in order."""
    return [
        (tuple(clique), part.queries(index), float(part.weights[index]))
        for part in workload.parts
        for index, clique in enumerate(part.cliques.tolist())
    ]


def test_each_part_and_number_of_attributes_is_a_part(tmp_path):
    pair = ["hours", "age"]
    workload = read(
        tmp_path,
        {"ways": [2, 1], "queries": "hybrid"},
        {"attributes": [pair, ["sex"], ["age", "p"]], "weight": 2.0},
        {"attributes": [pair], "queries": "affine", "weight": 0.5},
        {"attributes": [pair], "queries": {"family": "absdiff"}},
    )
    hybrid = [Prefix(5), Marginal(2), Prefix(3), Prefix(4), Prefix(1)]
    plain = [Marginal(n) for n in WIDER.sizes]
    expected = [((i, j), (hybrid[i], hybrid[j]), 1.0) for i, j in combinations(range(5), 2)]
    expected += [((i,), (hybrid[i],), 1.0) for i in range(5)]
    expected += [(c, tuple(plain[i] for i in c), 2.0) for c in [(AGE, HOURS), (AGE, P), (SEX,)]]
    expected += [((AGE, HOURS), (Affine(5, 3),), 0.5), ((AGE, HOURS), (AbsDiff(5, 3),), 1.0)]
    assert asked(workload) == expected
    assert [part.degree for part in workload.parts] == [2, 1, 2, 1, 2, 2]
    assert all(part.cliques.dtype == np.int32 for part in workload.parts)
    slow = sum(math.prod(q.num_queries for q in factors) for _, factors, _ in expected)
    assert workload.num_queries == slow


AXIS = {"marginal": Marginal, "prefix": Prefix, "range": Range, "circular": Circular}


@pytest.mark.parametrize("family", AXIS)
def test_a_family_by_name_with_or_without_braces(family, tmp_path):
    for queries in (family, {"family": family}):
        workload = read(tmp_path, {"attributes": [["age", "hours"]], "queries": queries})
        assert asked(workload) == [((AGE, HOURS), (AXIS[family](5), AXIS[family](3)), 1.0)]


def test_a_mapping_gives_each_attribute_its_own(tmp_path):
    np.save(tmp_path / "m.npy", np.eye(2, dtype=np.uint8))
    queries = {
        "age": "range",
        "sex": {"family": "custom", "matrix": "m.npy"},
        "hours": {"family": "random", "count": 4, "seed": 9},
        "p": "random",
    }
    sets = [["age", "sex"], ["p", "hours", "age"]]
    first, second = asked(read(tmp_path, {"attributes": sets, "queries": queries}))
    assert first == ((AGE, SEX), (Range(5), CustomAxis(np.eye(2))), 1.0)
    drawn = (Range(5), Random((3,), 0.3, 4, 9), Random((1,)))
    assert second == ((AGE, HOURS, P), drawn, 1.0)


@pytest.mark.parametrize(
    ("names", "queries", "factors"),
    [
        (["family"], {"family": "prefix"}, (Prefix(4),)),
        (["age"], {"family": "prefix"}, (Prefix(5),)),
        (["family", "age"], {"family": "prefix", "age": "range"}, (Range(5), Prefix(4))),
        (["family", "p"], {"family": "random", "p": 0.5}, (Random((4, 1), 0.5),)),
        (["family", "p"], {"family": "random", "p": "range"}, (Random((4,)), Range(1))),
        (["family", "p"], {"family": {"family": "range"}, "p": "prefix"}, (Range(4), Prefix(1))),
    ],
)
def test_an_attribute_may_be_called_family(names, queries, factors, tmp_path):
    workload = read(tmp_path, {"attributes": [names], "queries": queries})
    assert [f for _, f, _ in asked(workload)] == [factors]


def test_random_queries_are_shared_by_sets_of_equal_sizes():
    domain = Domain.from_sizes({"a": 3, "b": 2, "c": 3, "d": 2})
    (part,) = all_ways_queries(domain, 2, "random").parts
    by_set = {tuple(clique): part.joint[i] for i, clique in enumerate(part.cliques.tolist())}
    assert by_set[(0, 1)] is by_set[(0, 3)] is by_set[(2, 3)]
    assert by_set[(0, 1)] == Random((3, 2), 0.3, 18, 0)
    assert by_set[(1, 2)] == Random((2, 3), 0.3, 18, 0)


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_custom_columns_follow_the_order_in_which_the_set_is_listed(suffix, tmp_path):
    matrix = np.random.default_rng(0).normal(size=(2, 30))
    path = tmp_path / f"q.{suffix}"
    np.save(path, matrix) if suffix == "npy" else np.savetxt(path, matrix, delimiter=",")
    queries = {"family": "custom", "matrix": path.name}
    ((clique, (made,), _),) = asked(
        read(tmp_path, {"attributes": [["hours", "age", "sex"]], "queries": queries})
    )
    assert clique == (AGE, SEX, HOURS)
    table = np.random.default_rng(1).normal(size=made.shape)
    slow = matrix @ table.transpose(2, 0, 1).ravel()
    np.testing.assert_allclose(made.answer(table), slow, atol=1e-12)


def test_sets_that_occur_twice_in_a_part_add_their_weights(tmp_path):
    np.save(tmp_path / "m.npy", np.arange(15.0)[None])
    sets = [["age", "hours"], ["sex"], ["hours", "age"], ["p", "hours"]]
    pairs = [["age", "hours"], ["hours", "age"], ["age", "hours"]]
    workload = read(
        tmp_path,
        {"attributes": sets, "weight": 1.5},
        {"attributes": pairs, "queries": "affine"},
        {"attributes": pairs, "queries": {"family": "custom", "matrix": "m.npy"}},
        {"ways": [1, 1]},
    )
    first, single, affine, custom, ways = workload.parts
    assert (first.cliques.tolist(), first.weights.tolist()) == ([[0, 2], [2, 4]], [3.0, 1.5])
    assert (single.cliques.tolist(), single.weights.tolist()) == ([[1]], [1.5])
    assert (affine.cliques.tolist(), affine.weights.tolist()) == ([[0, 2]], [3.0])
    assert custom.weights.tolist() == [2.0, 1.0]  # columns in another order: other queries
    assert custom.joint[0] != custom.joint[1]
    assert ways.weights.tolist() == [1.0] * 5


@given(
    st.dictionaries(
        st.sets(st.integers(0, 4), min_size=1).map(lambda c: tuple(sorted(c))),
        st.floats(1e-4, 1e4),
        min_size=1,
    )
)
def test_marginals_mean_the_same_in_both_readings(weights):
    parts = [
        {"attributes": [WIDER.clique_names(clique)], "weight": weight}
        for clique, weight in weights.items()
    ]
    file = WorkloadFile.parse({"version": 1, "parts": parts})
    workload = file.query_workload(WIDER)
    assert {clique: weight for clique, _, weight in asked(workload)} == file.workload(WIDER).weights


def test_the_schema_says_what_is_ordered():
    columns = [
        {"name": "a", "type": "categorical", "values": ["x", "y"]},
        {"name": "b", "type": "categorical", "values": ["x", "y"], "ordered": True},
        {"name": "c", "type": "integer", "min": 0, "max": 1},
        {"name": "d", "type": "integer", "min": 0, "max": 1, "ordered": False},
        {"name": "e", "type": "boolean"},
    ]
    domain = Schema.parse({"version": 1, "columns": columns}).domain()
    assert [a.ordered for a in domain.attributes] == [False, True, True, False, False]
    assert domain == Domain.from_sizes(dict.fromkeys("abcde", 2))


def custom(matrix):
    return {"family": "custom", "matrix": matrix}


AGES = {"attributes": [["age"]]}
QUERY_FILE_BAD = {
    "range": (
        {"ways": [2], "queries": "range"},
        "'sex' is not ordered, so it cannot carry 'range'",
    ),
    "prefix": ({"attributes": [["sex"]], "queries": "prefix"}, "'sex' is not ordered"),
    "circular": (
        {"attributes": [["sex", "age"]], "queries": {"age": "range", "sex": "circular"}},
        "'sex' is not ordered",
    ),
    "affine of one": (AGES | {"queries": "affine"}, "compare two attributes"),
    "affine of three": ({"ways": [3], "queries": "affine"}, "and the set has 3: use sets of two"),
    "absdiff of one": (
        {"attributes": [["age", "p"]], "queries": {"age": "absdiff", "p": "range"}},
        "cannot ask about 'age' alone",
    ),
    "mapping misses": (
        {"attributes": [["age", "sex"]], "queries": {"age": "range"}},
        "give no family for attribute 'sex'",
    ),
    "mapping of others": (
        AGES | {"queries": {"age": "range", "hours": "range"}},
        "'hours', which is in no set",
    ),
    "mapping of unknown": (AGES | {"queries": {"age": "range", "x": "range"}}, "'x' is not in"),
    "empty mapping": (AGES | {"queries": {}}, "give no family for attribute 'age'"),
    "p": (AGES | {"queries": {"family": "random", "p": 1.5}}, "queries.p: must be at most 1"),
    "p zero": (
        AGES | {"queries": {"family": "random", "p": 0}},
        "queries.p: must be above 0, not 0",
    ),
    "count": (AGES | {"queries": {"family": "random", "count": 0}}, "queries.count: must be at"),
    "count float": (AGES | {"queries": {"family": "random", "count": 1.5}}, "queries.count"),
    "seed": (AGES | {"queries": {"family": "random", "seed": -1}}, "queries.seed: must be at"),
    "parameters": (AGES | {"queries": {"family": "prefix", "p": 0.5}}, "queries.p: is not a known"),
    "of attribute": (
        AGES | {"queries": {"age": {"family": "random", "p": 7}}},
        "queries.age.p: must be at most 1",
    ),
    "nested": (AGES | {"queries": {"age": {"age": "range"}}}, "queries.age.age: is not a known"),
    "list": (AGES | {"queries": ["range"]}, "queries: must be"),
    "no matrix": (AGES | {"queries": "custom"}, "'custom' queries need a matrix"),
    "no file": (AGES | {"queries": {"family": "custom"}}, "queries.matrix: is required"),
    "weight": (AGES | {"queries": "range", "weight": 0}, "weight: must be at least 1e-12, not 0"),
    "large weight": (AGES | {"weight": 1e308}, "weight: must be at most 1e+12, not 1e+308"),
    "tiny weight": (AGES | {"weight": 1e-320}, "weight: must be at least 1e-12, not 1e-320"),
    "ways": ({"ways": [6], "queries": "hybrid"}, "ways is 6. Use a number from 1 to 5"),
}


@pytest.mark.parametrize("case", QUERY_FILE_BAD)
def test_bad_parts_are_refused_in_one_line(case, tmp_path):
    content, hint = QUERY_FILE_BAD[case]
    path = write(tmp_path, {"ways": [1]}, content)
    assert hint in refusal(lambda: resolve_queries(path, WIDER), f"{path}: part 2: ")


def test_only_zero_queries_are_refused_and_some_are_not(tmp_path):
    rare = {"attributes": [["age"], ["age", "sex"]], "queries": {"family": "random", "p": 1e-9}}
    with pytest.raises(WorkloadError, match=r"w.json: part 1: every query is zero: ask about some"):
        resolve_queries(write(tmp_path, rare), WIDER)
    with pytest.raises(WorkloadError, match=r"w.json: parts 1 to 2: every query is zero"):
        resolve_queries(write(tmp_path, rare, rare), WIDER)
    assert resolve_queries(write(tmp_path, rare, {"ways": [1]}), WIDER).num_sets == 7


REFUSED = [
    BAD[case][0]
    for case in ("extra key", "weight 0", "no family", "version", "no parts", "empty set")
]
REFUSED += [
    of_parts(QUERY_FILE_BAD[case][0])
    for case in ("p", "count", "seed", "of attribute", "count float", "list")
]


@pytest.mark.parametrize("content", REFUSED, ids=str)
def test_the_published_schema_refuses_what_the_reader_refuses(content):
    with pytest.raises(jsonschema.ValidationError):
        validate_workload(content)


def save(name, values):
    return lambda folder: np.save(folder / name, values)


def text(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def several(folder):
    np.savez(folder / "m.npz", EYE)
    (folder / "m.npz").rename(folder / "m.npy")


EYE = np.eye(5)
BAD_MATRICES = {
    "missing": (lambda folder: None, "m.npy", "no such file"),
    "several": (several, "m.npy", "several arrays"),
    "folder": (lambda folder: os.mkdir(folder / "m.csv"), "m.csv", "check the path"),
    "kind": (text("m.txt", b"1"), "m.txt", "not a .npy or .csv file"),
    "width": (save("m.npy", np.eye(4)), "m.npy", "4 columns for 5 cells"),
    "NaN": (save("m.npy", EYE * np.nan), "m.npy", "row 1 of the matrix"),
    "infinite": (save("m.npy", np.where(EYE == 1, np.inf, 0)), "m.npy", "row 1 of the matrix"),
    "huge": (save("m.npy", EYE * 1e300), "m.npy", "row 1 of the matrix"),
    "no rows": (save("m.npy", np.empty((0, 5))), "m.npy", "no rows"),
    "scales": (save("m.npy", np.diag([1, 1, 1, 1, 1e-5])), "m.npy", "rows 5 and 1 differ"),
    "vector": (save("m.npy", np.ones(5)), "m.npy", "has 1 dimension of type float64, not 2"),
    "complex": (save("m.npy", EYE * 1j), "m.npy", "type complex128"),
    "text": (save("m.npy", EYE.astype(str)), "m.npy", "save real numbers"),
    "objects": (save("m.npy", EYE.astype(object)), "m.npy", "not a complete .npy file"),
    "truncated": (text("m.npy", b"\x93NUMPY\x01\x00v\x00{'descr': "), "m.npy", "not a complete"),
    "empty": (text("m.npy", b""), "m.npy", "not a complete"),
    "csv header": (
        text("m.csv", b"a,b,c,d,e\n1,2,3,4,5\n"),
        "m.csv",
        "row 1 is not a row of numbers",
    ),
    "csv ragged": (text("m.csv", b"1,2,3,4,5\n1,2\n"), "m.csv", "as long as row 1"),
    "csv NaN": (text("m.csv", b"1,2,3,4,nan\n"), "m.csv", "row 1 of the matrix"),
    "csv hole": (text("m.csv", b"1,2,3,,5\n"), "m.csv", "row 1 is not a row of numbers"),
    "csv bytes": (text("m.csv", b"\xff\xfe1"), "m.csv", "UTF-8"),
    "csv empty": (text("m.csv", b"\n"), "m.csv", "no rows"),
}


@pytest.mark.parametrize("case", BAD_MATRICES)
def test_bad_matrices_are_refused_in_one_line(case, tmp_path):
    make, name, hint = BAD_MATRICES[case]
    make(tmp_path)
    path = write(tmp_path, AGES | {"queries": custom(name)})
    place = f"{path}: part 1: {tmp_path / name}: "
    assert hint in refusal(lambda: resolve_queries(path, WIDER), place)


@pytest.mark.parametrize(
    ("module", "limit", "queries", "message"),
    [
        (matrices, "MAX_COEFFICIENTS", custom("m.npy"), "25 coefficients, more than 24"),
        (matrices, "MAX_COEFFICIENTS", custom("m.csv"), "25 coefficients, more than 24"),
        (matrices, "MAX_CSV_BYTES", custom("m.csv"), "save the matrix as .npy"),
        (matrices, "MAX_COEFFICIENTS", "random", "75 coefficients, more than 24"),
        (workload_file, "MAX_CLIQUES", "marginal", "more than 24"),
    ],
)
def test_too_much_is_a_matter_of_resources(module, limit, queries, message, monkeypatch, tmp_path):
    np.save(tmp_path / "m.npy", EYE)
    np.savetxt(tmp_path / "m.csv", EYE, delimiter=",")
    monkeypatch.setattr(module, limit, 24)
    ages = AGES | {"queries": queries}
    with pytest.raises(ResourceExceeded, match="part [16]: .*" + message):
        resolve_queries(write(tmp_path, *[ages] + [{"ways": [1]}] * 5), WIDER)


def test_too_many_sets_are_refused_before_they_are_listed(monkeypatch):
    wide = Domain.from_sizes({f"a{i}": 2 for i in range(60)})
    listed = "adaptive_qs.workload.workload.combinations"
    monkeypatch.setattr(listed, lambda *_: pytest.fail("the sets were listed"))
    with pytest.raises(ResourceExceeded, match="all sets of 30 of 60 attributes"):
        all_ways_queries(wide, 30)


@pytest.mark.parametrize("family", ["prefix", {"age": "hybrid"}, {"family": "random"}])
def test_the_marginals_of_a_workload_are_over_its_sets_whatever_is_asked_of_them(family, tmp_path):
    path = write(tmp_path, AGES | {"queries": family}, {"ways": [1], "weight": 2})
    assert resolve_workload(path, WIDER).weights[AGE,] == 3.0
    make = other_queries(path)
    assert make is not None
    assert workload_digest(make(WIDER)) == workload_digest(resolve_queries(path, WIDER))


@pytest.mark.parametrize("family", ["marginal", {"family": "marginal"}, {"age": "marginal"}])
def test_a_workload_of_cells_asks_for_no_other_queries(family, tmp_path):
    path = write(tmp_path, AGES | {"queries": family})
    assert other_queries(path) is None
    assert other_queries(2) is other_queries(None) is None
    assert resolve_workload(path, WIDER).weights == {(AGE,): 1.0}
