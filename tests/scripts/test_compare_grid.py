"""Which cells a grid has, how each mechanism runs them, and by what errors it is judged."""

import itertools

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.workload.workload import Workload
from scripts.compare.grid import GRIDS, Cell, Grid
from scripts.compare.job import Job, read_answers, read_codes, write_codes
from scripts.compare.mechanisms import ANSWERS, FLOORS, OURS, all_mechanisms, check_known
from scripts.compare.scoring import answer_error, table_error
from scripts.compare.tables import REAL
from scripts.compare.worker import MECHANISMS, main

CELL = Cell("toy", 2, 1.0, 1e-9, "adaptive", "{}", 7, 60.0)
KNOWN = all_mechanisms(None)
SIZES = {"a2": 2, "a3": 3, "a4": 4}
ROWS = 400


def test_a_key_is_the_same_in_every_version():
    """A results file outlives the program: this key must never change."""
    assert CELL.key("0123456789abcdef") == "11ea6f2a7b5595152fd4"


@pytest.mark.parametrize("name", [path.stem for path in GRIDS.glob("*.json")])
def test_committed_grids_name_known_mechanisms_and_tables(name):
    for block in Grid.load(name).blocks:
        assert set(block.tables) <= set(REAL)
        for chosen in block.mechanisms:
            check_known(chosen.name, chosen.settings, KNOWN)


def table(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2, rows)
    columns = [first, (first + rng.integers(0, 2, rows)) % 3, rng.integers(0, 4, rows)]
    return CodedTable.from_codes(Domain.from_sizes(SIZES), columns)


def job(folder, mechanism, epsilon=1.0, settings=None):
    """Runs a job with a mechanism of this project."""
    private = mechanism not in FLOORS
    made = Job(
        codes=str(folder / "codes.npy"), domain=SIZES,
        workload=[list(pair) for pair in itertools.combinations(SIZES, 2)],
        epsilon=epsilon if private else None, delta=1e-9 if private else None, seed=3, threads=1,
        out=str(folder / "out.npy"), report=str(folder / "report.json"),
        answers=str(folder / "answers.f64"), mechanism=mechanism, settings=settings or {},
    )  # fmt: skip
    write_codes(folder / "codes.npy", table())
    made.save(folder / "job.json")
    main(str(folder / "job.json"))
    return made


def test_table_errors_follow_their_definition():
    a, b = table(0), table(1, 300)
    l1, l2 = [], []
    for i, j in itertools.combinations(range(3), 2):
        gaps = []
        for x, y in np.ndindex(a.domain.shape((i, j))):
            share = [np.mean((t.columns[i] == x) & (t.columns[j] == y)) for t in (a, b)]
            gaps.append(share[0] - share[1])
        l1.append(np.abs(gaps).sum())
        l2.append(np.sqrt(np.square(gaps).sum()))
    found = table_error(a, b, Workload.all_ways(a.domain, 2))
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
    answers.tofile(tmp_path / "answers")
    found = answer_error(true, tmp_path / "answers", workload)
    raw = np.abs(counts - answers).sum() / ROWS
    clipped = np.maximum(answers, 0)
    projected = np.abs(counts / ROWS - clipped / clipped.sum()).sum()
    assert found["raw"]["mean_l1"] == pytest.approx(raw)
    assert found["projected"]["mean_l1"] == pytest.approx(projected)
    np.zeros(5).tofile(tmp_path / "answers")
    with pytest.raises(ValueError, match="one number for each cell"):
        list(read_answers(tmp_path / "answers", workload))


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_writes_what_it_should(tmp_path, name):
    """With epsilon 10,000 noise is far below a row; what is left is the mechanism's own."""
    workload = job(tmp_path, name, epsilon=10_000.0).marginals()
    true = table()
    if name in ANSWERS:
        assert not (tmp_path / "out.npy").exists()
    else:
        error = table_error(true, read_codes(tmp_path / "out.npy", true.domain), workload)
        # Independent columns miss the dependence of the first two, half of whose cells are empty.
        blind = name in ("independent", "true-independent")
        assert 0.15 < error["mean_l1"] < 0.45 if blind else error["mean_l1"] < 0.15
        assert error["total_variation"]["1"] < 0.05
    if name in OURS + ANSWERS:
        # Answers are within a hundredth of a row of the counts, in the workload's order.
        for clique, found in read_answers(tmp_path / "answers.f64", workload):
            np.testing.assert_allclose(found, MarginalCounter(true).count(clique), atol=1.0)
