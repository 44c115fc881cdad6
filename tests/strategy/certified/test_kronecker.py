"""Products and sums of products are recognised, solved by their factors, and put together."""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce

import numpy as np
import pytest

from adaptive_qs.strategy.certified.dense import solve_dense
from adaptive_qs.strategy.certified.kronecker import factorise
from adaptive_qs.strategy.certified.solve import solve
from adaptive_qs.strategy.certified.solve_cache import SolveCache
from adaptive_qs.strategy.matrix import CenteringFactor
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.centered import CenteredAxis, centered_part
from adaptive_qs.workload.joint_queries import Affine
from adaptive_qs.workload.subworkload import Subworkload, Term

from .oracles import strategy_matrix, total_error, unanswered

SETTINGS = SolverSettings()


def term(scale, *families):
    return Term(scale, tuple(CenteredAxis(queries) for queries in families))


def kept(scale, axes):
    return Term(scale, (centered_part(Affine(4, 4), axes),))


def sub(*terms):
    return Subworkload(tuple(n for f in terms[0].factors for n in f.shape), terms)


P, R, M, C = Prefix, Range, Marginal, Circular
WHOLE = {  # name: subworkload and the axes of its pieces
    "product": (sub(term(2.0, P(4), R(3), M(5))), [(0,), (1,), (2,)]),
    "one axis differs": (sub(term(2.0, P(4), R(5)), term(0.5, P(4), M(5))), [(0,), (1,)]),
    "same terms": (sub(term(2.0, P(4), R(5)), term(0.5, P(4), R(5))), [(0,), (1,)]),
    "binary axes are all alike": (sub(term(2.0, P(2), R(5)), term(3.0, M(2), R(5))), [(0,), (1,)]),
    "two axes differ": (sub(term(2.0, P(4), R(5)), term(0.5, M(4), P(5))), [(0, 1)]),
    "expanded product": (
        sub(
            term(2.0, P(3), R(4)),
            term(1.0, R(3), R(4)),
            term(4.0, P(3), M(4)),
            term(2.0, R(3), M(4)),
        ),
        [(0,), (1,)],
    ),
    "outer axes differ": (
        sub(term(2.0, P(4), R(3), P(5)), term(0.5, M(4), R(3), R(5))),
        [(0, 2), (1,)],
    ),
    "interleaved, then a product": (
        sub(term(1.0, P(3), R(3), P(4), C(4)), term(0.5, M(3), R(3), R(4), C(4))),
        [(0, 2), (1,), (3,)],
    ),
    "circular": (sub(term(2.0, C(7), C(4))), [(0,), (1,)]),
    "joint": (sub(kept(2.0, (0, 1)), term(1.0, P(4), P(4))), [(0, 1)]),
    "one kept axis of a joint family": (sub(kept(2.0, (0,)), term(1.0, P(4))), [(0,)]),
}


@pytest.fixture(params=WHOLE)
def case(request):
    return WHOLE[request.param]


def test_pieces_multiply_to_the_whole(case):
    subworkload, axes = case
    scale, pieces = factorise(subworkload)
    assert [piece.axes for piece in pieces] == axes
    sizes = [n for piece in pieces for n in piece.subworkload.shape]
    order = np.argsort([a for piece in pieces for a in piece.axes])
    gram = scale * reduce(np.kron, [piece.subworkload.gram() for piece in pieces])
    k = len(sizes)
    gram = gram.reshape(sizes * 2).transpose([*order, *(order + k)])
    expected = subworkload.gram()
    np.testing.assert_allclose(
        gram.reshape(expected.shape), expected, rtol=0, atol=1e-13 * np.abs(expected).max()
    )


def test_solution_of_the_whole_is_what_it_says(case):
    subworkload, _ = case
    solution = solve(subworkload, SETTINGS)
    gram = subworkload.gram()
    matrix = strategy_matrix(solution.strategy)
    direct = solve_dense(gram, subworkload.shape, SETTINGS)
    assert solution.strategy.shape == subworkload.shape
    assert (matrix * matrix).sum(axis=0).max() == pytest.approx(1, abs=1e-9)
    assert unanswered(gram, matrix) < 1e-8
    assert solution.objective == pytest.approx(total_error(gram, matrix), rel=1e-8)
    assert solution.status == Status.OPTIMAL
    assert solution.gap <= SETTINGS.gap
    # The optimum lies within both certificates.
    assert solution.lower_bound <= direct.objective
    assert direct.lower_bound <= solution.objective


def test_covariance_of_an_interleaved_factor():
    (factor,) = solve(WHOLE["outer axes differ"][0]).strategy.factors
    inverse = np.linalg.pinv(factor.matrix, rcond=1e-12)
    np.testing.assert_allclose(factor.inverse, inverse, atol=1e-10)
    np.testing.assert_allclose(factor.covariance, inverse @ inverse.T, atol=1e-10)


def test_marginal_factors_need_no_solver():
    solution = solve(sub(term(3.0, M(100), M(2), P(2))))
    assert all(isinstance(factor, CenteringFactor) for factor in solution.strategy.factors)
    assert solution.iterations == 0
    # tr G of the halved difference that prefix queries ask of two cells is 1/2: G = Π/2.
    assert solution.objective == pytest.approx(3 * 99**2 / 100 * (1 / 2) * (1 / 2) / 2, rel=1e-12)
    assert solution.gap == 0


def test_equal_problems_are_solved_once():
    cache = SolveCache()
    first = solve(sub(term(3.0, P(9), R(8))), SETTINGS, cache)
    assert len(cache) == 2
    second = solve(sub(term(5.0, R(8), P(9), P(9))), SETTINGS, cache)
    assert len(cache) == 2
    assert second.strategy.factors[0] is first.strategy.factors[1]
    # Sums that are equal up to the order of their terms and a scale.
    solve(sub(term(1.0, P(9)), term(3.0, R(9))), SETTINGS, cache)
    solve(sub(term(9.0, R(9)), term(3.0, P(9))), SETTINGS, cache)
    assert len(cache) == 3
    solve(sub(term(9.0, R(9)), term(4.0, P(9))), SETTINGS, cache)
    assert len(cache) == 4


def test_threads_that_ask_for_one_problem_get_one_solution():
    cache, subworkload = SolveCache(), sub(term(1.0, P(30), P(30)))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: solve(subworkload, SETTINGS, cache), range(16)))
    assert len({id(factor) for solution in found for factor in solution.strategy.factors}) == 1


def test_a_failure_is_not_remembered():
    cache = SolveCache()
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 / 0)
    solution = solve(sub(term(1.0, P(3))))
    assert cache.get("key", lambda: solution) is solution
    assert cache.get("key", lambda: 1 / 0) is solution
