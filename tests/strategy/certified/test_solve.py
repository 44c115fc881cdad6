"""The automatic choice: which solver runs, and what is refused before it starts."""

import tracemalloc

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.certified import limits
from adaptive_qs.strategy.certified import solve as module
from adaptive_qs.strategy.certified.solve import solve
from adaptive_qs.strategy.certified.superadditive import superadditive_bound
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.centered import CenteredAxis, centered_part
from adaptive_qs.workload.joint_queries import AbsDiff, Affine
from adaptive_qs.workload.subworkload import Subworkload, Term

SETTINGS = SolverSettings()


def joint(scale, family):
    return Term(scale, (centered_part(family, (0, 1)),))


def products(scale, *families):
    return Term(scale, tuple(CenteredAxis(queries) for queries in families))


def record(monkeypatch, name):
    """Calls of a solver, which still runs."""
    calls, real = [], getattr(module, name)

    def wrapper(*args):
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(module, name, wrapper)
    return calls


def test_the_total_has_nothing_to_choose():
    solution = solve(Subworkload((), (Term(2.0, ()), Term(0.5, ()))))
    assert solution.strategy.factors == ()
    assert (solution.objective, solution.lower_bound) == (2.5, 2.5)
    assert solution.status == Status.OPTIMAL
    assert solution.iterations == 0


def test_ranges_over_thousands_of_values_are_waves_within_the_gap(monkeypatch):
    dense = record(monkeypatch, "solve_dense")
    solution = solve(Subworkload((8_000,), (products(3.0, Range(8_000)),)), SETTINGS)
    assert not dense
    assert isinstance(solution.strategy.factors[0], FourierFactor)
    assert solution.status == Status.OPTIMAL
    assert 0 < solution.gap < SETTINGS.gap
    with pytest.raises(ResourceExceeded):
        solve(Subworkload((9_000,), (products(1.0, Prefix(9_000)),)), SETTINGS)


def test_few_joint_queries_are_solved_by_their_rows(monkeypatch):
    few, dense = record(monkeypatch, "solve_rows"), record(monkeypatch, "solve_dense")
    solution = solve(Subworkload((70, 70), (joint(1.0, Affine(70, 70)),)))
    assert len(few) == 1
    assert not dense
    assert solution.status == Status.OPTIMAL


def test_several_terms_of_few_queries_are_stacked(monkeypatch):
    few = record(monkeypatch, "solve_rows")
    both = Subworkload((9, 9), (joint(1.0, Affine(9, 9)), joint(4.0, AbsDiff(9, 9))))
    solution = solve(both)
    assert len(few) == 1
    rows = few[0][0]
    np.testing.assert_allclose(rows.T @ rows * 5, both.gram(), atol=1e-10)
    factor = solution.strategy.factors[0]
    assert solution.objective == pytest.approx(np.trace(both.gram() @ factor.covariance), rel=1e-9)


def test_many_queries_are_solved_by_their_gram(monkeypatch):
    dense = record(monkeypatch, "solve_dense")
    solve(Subworkload((6, 6), (joint(1.0, Affine(6, 6)), products(1.0, Prefix(6), Prefix(6)))))
    assert len(dense) == 1


def test_circular_queries_have_a_closed_form_at_any_size(monkeypatch):
    dense = record(monkeypatch, "solve_dense")
    solution = solve(Subworkload((10_000,), (products(1.0, Circular(10_000)),)))
    assert not dense
    assert solution.status == Status.OPTIMAL
    assert solution.gap < 1e-9


def test_memory_is_refused_before_it_is_taken():
    terms = (joint(1.0, Affine(200, 200)), products(1.0, Prefix(200), Prefix(200)))
    tracemalloc.start()
    with pytest.raises(ResourceExceeded) as refused:
        solve(Subworkload((200, 200), terms), SETTINGS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    message = str(refused.value)
    for words in ("200 x 200", "40,000", "107.3 GiB", "4.0 GiB", "--mechanism auto"):
        assert words in message
    assert "\n" not in message
    assert peak < 2**24  # one prefix Gram of 320 kB, a few times over; the whole has 12.8 GB


@pytest.mark.parametrize("family", [Range, Prefix])
def test_a_huge_ordered_axis_is_refused(family):
    with pytest.raises(ResourceExceeded, match=r"10,000 values.*--mechanism"):
        solve(Subworkload((10_000,), (products(1.0, family(10_000)),)), SETTINGS)


def test_time_is_refused_where_symmetry_does_not_help(monkeypatch):
    monkeypatch.setattr(limits, "DENSE_CELLS", 20)
    symmetric = Subworkload((6, 6), (joint(1.0, Affine(6, 6)), products(1.0, *[Prefix(6)] * 2)))
    assert solve(symmetric, SETTINGS).status == Status.OPTIMAL  # blocks of 12 or fewer
    mixed = (products(1.0, Prefix(5), Marginal(8)), products(1.0, Custom(5), Custom(8)))
    with pytest.raises(ResourceExceeded, match=r"5 x 8 values \(40 cells\).*limit of 20"):
        solve(Subworkload((5, 8), mixed), SETTINGS)
    enormous = (products(1.0, Prefix(9), Marginal(10)), products(1.0, Range(9), Range(10)))
    with pytest.raises(ResourceExceeded, match="eigenvectors of 90 cells"):
        solve(Subworkload((9, 10), enormous), SETTINGS)


class Custom(Prefix):
    """Prefix queries with unequal weights: no reversal leaves them alone."""

    def gram(self):
        rows = np.arange(1, self.size + 1)[:, None] * np.tril(np.ones((self.size, self.size)))
        return rows.T @ rows


def test_few_queries_over_too_many_cells_are_refused_before_they_are_made():
    tracemalloc.start()
    with pytest.raises(ResourceExceeded, match="400 x 400"):
        solve(Subworkload((400, 400), (joint(1.0, Affine(400, 400)),)), SETTINGS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20  # against 1 GB of queries


def test_an_interleaved_strategy_is_checked_too():
    terms = (
        products(1.0, Prefix(20), Range(40), Prefix(20)),
        products(1.0, Marginal(20), Range(40), Range(20)),
    )
    with pytest.raises(ResourceExceeded, match="20 x 40 x 20"):
        solve(Subworkload((20, 40, 20), terms), SETTINGS)


def test_iteration_limit_gives_an_honest_gap():
    settings = SolverSettings(gap=1e-9, max_iterations=1)
    pair = Subworkload((6, 6), (joint(1.0, Affine(6, 6)), products(1.0, *[Prefix(6)] * 2)))
    stopped, best = solve(pair, settings), solve(pair, SolverSettings(gap=1e-6))
    assert stopped.status == Status.STOPPED
    assert stopped.gap > settings.gap
    assert stopped.lower_bound <= best.objective <= stopped.objective * (1 + 1e-6)


def test_bounds_of_the_terms_bound_the_sum():
    terms = (joint(1.0, Affine(6, 6)), products(2.0, Prefix(6), Range(6)))
    both = Subworkload((6, 6), terms)
    alone = [solve(Subworkload((6, 6), (term,)), SETTINGS) for term in terms]
    bound = superadditive_bound(both, SETTINGS)
    assert bound == pytest.approx(sum(solution.lower_bound for solution in alone), rel=1e-12)
    assert 0 < bound <= solve(both, SETTINGS).objective


def test_a_sum_that_is_refused_still_has_a_bound():
    terms = (joint(1.0, Affine(90, 90)), products(1.0, Prefix(90), Prefix(90)))
    settings = SolverSettings(max_bytes=2**26)
    with pytest.raises(ResourceExceeded):
        solve(Subworkload((90, 90), terms), settings)
    single = solve(Subworkload((90,), (products(1.0, Prefix(90)),)), settings)
    product = single.lower_bound**2
    bound = superadditive_bound(Subworkload((90, 90), terms), settings)
    assert product < bound < 1.1 * product  # 179 affine queries beside 8,100 prefix queries
