"""Errors against a slow definition, and every mechanism of this project on a small table."""

import itertools

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.compare.job import Job, read_answers, read_codes, write_codes
from scripts.compare.mechanisms import ANSWERS, BASELINES, FLOORS, OURS
from scripts.compare.scoring import answer_error, as_distribution, table_error
from scripts.compare.worker import MECHANISMS, main

SIZES = (2, 3, 4)
ROWS = 400


def table(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes({f"a{n}": n for n in SIZES})
    first = rng.integers(0, 2, rows)
    columns = [first, (first + rng.integers(0, 2, rows)) % 3, rng.integers(0, 4, rows)]
    return CodedTable.from_codes(domain, columns)


def job(folder, mechanism, epsilon=1.0, settings=None):
    private = mechanism not in FLOORS
    names = [f"a{n}" for n in SIZES]
    made = Job(
        codes=str(folder / "codes.npy"), domain=dict(zip(names, SIZES)),
        workload=[list(pair) for pair in itertools.combinations(names, 2)],
        epsilon=epsilon if private else None, delta=1e-9 if private else None, seed=3, threads=1,
        out=str(folder / "out.npy"), report=str(folder / "report.json"),
        answers=str(folder / "answers.f64"), mechanism=mechanism, settings=settings or {},
    )  # fmt: skip
    write_codes(folder / "codes.npy", table())
    made.save(folder / "job.json")
    return made


def test_table_errors_follow_their_definition():
    a, b = table(0), table(1, 300)
    workload = Workload.all_ways(a.domain, 2)
    l1, l2 = [], []
    for i, j in itertools.combinations(range(3), 2):
        gaps = []
        for x, y in itertools.product(range(SIZES[i]), range(SIZES[j])):
            share = [np.mean((t.columns[i] == x) & (t.columns[j] == y)) for t in (a, b)]
            gaps.append(share[0] - share[1])
        l1.append(np.abs(gaps).sum())
        l2.append(np.sqrt(np.square(gaps).sum()))
    found = table_error(a, b, workload)
    assert found["mean_l1"] == pytest.approx(np.mean(l1))
    assert found["max_l1"] == pytest.approx(np.max(l1))
    assert found["mean_l2"] == pytest.approx(np.mean(l2))
    assert found["total_variation"]["2"] == pytest.approx(np.mean(l1) / 2)
    assert set(found["total_variation"]) == {"1", "2", "3"}
    assert found["rows"] == 300


def test_answers_are_judged_as_they_came_and_as_distributions(tmp_path):
    true = table()
    workload = Workload(true.domain, {(0, 1): 1.0})
    counts = MarginalCounter(true).count((0, 1)).astype(float)
    answers = 2 * counts
    answers[0, 2] = -40.0
    np.asarray(answers).tofile(tmp_path / "answers")
    found = answer_error(true, tmp_path / "answers", workload)
    raw = np.abs(counts - answers).sum() / ROWS
    clipped = np.maximum(answers, 0)
    projected = np.abs(counts / ROWS - clipped / clipped.sum()).sum()
    assert found["raw"]["mean_l1"] == pytest.approx(raw)
    assert found["projected"]["mean_l1"] == pytest.approx(projected)


def test_answers_of_another_length_are_refused(tmp_path):
    np.zeros(5).tofile(tmp_path / "answers")
    with pytest.raises(ValueError, match="one number for each cell"):
        list(read_answers(tmp_path / "answers", Workload(table().domain, {(0, 1): 1.0})))


def test_answers_without_a_positive_one_become_uniform():
    np.testing.assert_allclose(as_distribution(np.array([[-1.0, 0.0]])), [[0.5, 0.5]])


def test_the_worker_runs_what_grids_may_name():
    assert set(MECHANISMS) == {*OURS, *BASELINES, *ANSWERS, *FLOORS}


@pytest.mark.parametrize("name", [*OURS, *BASELINES, *ANSWERS, *FLOORS])
def test_every_mechanism_writes_what_it_should(tmp_path, name):
    """With epsilon 10,000 noise is far below a row; what is left is the mechanism's own."""
    made = job(tmp_path, name, epsilon=10_000.0)
    main(str(tmp_path / "job.json"))
    true, workload = table(), made.marginals()
    if name in ANSWERS:
        assert not (tmp_path / "out.npy").exists()
    else:
        synthetic = read_codes(tmp_path / "out.npy", true.domain)
        error = table_error(true, synthetic, workload)
        # Independent columns miss the dependence of the first two, half of whose cells are empty.
        blind = name in ("independent", "true-independent")
        assert 0.15 < error["mean_l1"] < 0.45 if blind else error["mean_l1"] < 0.15
        assert error["total_variation"]["1"] < 0.05
    if name in OURS + ANSWERS:
        # Answers are within a hundredth of a row of the counts, in the workload's order.
        answers = read_answers(tmp_path / "answers.f64", workload)
        for clique, found in answers:
            np.testing.assert_allclose(found, MarginalCounter(true).count(clique), atol=1.0)


def test_a_setting_reaches_the_mechanism(tmp_path):
    job(tmp_path, "adaptive", settings={"reference": "uniform"})
    main(str(tmp_path / "job.json"))
    assert '"reference": "uniform"' in (tmp_path / "report.json").read_text()
