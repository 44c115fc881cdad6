"""What stands in for the certified solver where it refuses, within memory."""

from functools import reduce

import numpy as np
import pytest

from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.strategy.certified import limits
from adaptive_qs.strategy.certified.solve_cache import SolveCache
from adaptive_qs.strategy.matrix import CenteringFactor
from adaptive_qs.strategy.mechanisms.residual_choice import restricted
from adaptive_qs.strategy.restricted.fourier import solve_fourier
from adaptive_qs.strategy.restricted.fourier_factor import FourierFactor
from adaptive_qs.strategy.restricted.fourier_product import solve_fourier_product
from adaptive_qs.strategy.restricted.planner import solve_residual_planner
from adaptive_qs.strategy.settings import SolverSettings
from adaptive_qs.strategy.solution import Status
from adaptive_qs.workload.axis_queries import Circular, Prefix, Range
from adaptive_qs.workload.centered import CenteredAxis, centered_part
from adaptive_qs.workload.joint_queries import AbsDiff, Affine
from adaptive_qs.workload.subworkload import Subworkload, Term

SETTINGS = SolverSettings()


def joint(queries, scale=1.0):
    return Term(scale, (centered_part(queries, (0, 1)),))


def products(*queries):
    return Term(1.0, tuple(map(CenteredAxis, queries)))


SUMS = {
    "affine": Subworkload((7, 6), (joint(Affine(7, 6)),)),
    "joint and products": Subworkload(
        (6, 5), (joint(AbsDiff(6, 5), 2.0), products(Prefix(6), Prefix(5)))
    ),
    "products": Subworkload(
        (4, 5, 3),
        (products(Prefix(4), Range(5), Prefix(3)), products(Circular(4), Prefix(5), Range(3))),
    ),
    "one axis": Subworkload((9,), (products(Prefix(9)),)),
}


def dense_error(subworkload, strategy):
    b = reduce(np.kron, [factor.matrix for factor in strategy.factors])
    return float(np.trace(subworkload.gram() @ np.linalg.pinv(b.T @ b, rcond=1e-11)))


@pytest.mark.parametrize("name", SUMS)
def test_fourier_products_have_the_error_they_say(name):
    found = solve_fourier_product(SUMS[name], SETTINGS)
    assert found.objective == pytest.approx(dense_error(SUMS[name], found.strategy), rel=1e-8)
    assert found.lower_bound <= found.objective
    assert found.strategy.shape == SUMS[name].shape
    best = solve_fourier(SUMS[name]).objective
    assert best * (1 - 1e-9) <= found.objective
    assert found.objective <= solve_residual_planner(SUMS[name]).objective * (1 + 1e-9)


def test_a_single_product_is_solved_exactly():
    single = Subworkload((5, 4), (products(Prefix(5), Range(4)),))
    found = solve_fourier_product(single, SETTINGS)
    assert found.objective == pytest.approx(solve_fourier(single).objective, rel=1e-9)
    level = Subworkload((5, 4), (products(Circular(5), Circular(4)),))
    assert solve_fourier_product(level, SETTINGS).status is Status.OPTIMAL


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("limit", [1_300, 2_500, 4_000, 2**30])
def test_fallbacks_can_be_measured_within_memory(name, limit, monkeypatch):
    """Only closed forms have no matrix: of all others six copies fit."""
    monkeypatch.setattr(limits, "check_queries", lambda *_: None)
    settings = SolverSettings(max_bytes=limit)
    found = restricted(SUMS[name], settings, SolveCache())
    for factor in found.strategy.factors:
        cells = int(np.prod(factor.shape))
        assert isinstance(factor, CenteringFactor) or 6 * 8 * cells**2 <= limit
    assert found.objective == pytest.approx(dense_error(SUMS[name], found.strategy), rel=1e-8)
    assert 0 < found.lower_bound <= found.objective
    roomy = restricted(SUMS[name], SETTINGS, SolveCache())
    assert roomy.objective <= found.objective * (1 + 1e-9)


def test_a_huge_axis_is_measured_by_contrasts():
    sizes = (20_000,)
    asked = Subworkload(sizes, (products(Range(20_000)),))
    found = restricted(asked, SolverSettings(max_bytes=2**30), SolveCache())
    assert found.strategy.factors == (CenteringFactor(20_000),)
    roomy = restricted(asked, SolverSettings(max_bytes=2**35), SolveCache())
    assert isinstance(roomy.strategy.factors[0], FourierFactor)
    assert roomy.objective < found.objective


def test_queries_that_do_not_fit_are_refused():
    settings = SolverSettings(max_bytes=2**20)
    asked = Subworkload((300, 280), (joint(Affine(300, 280)),))
    with pytest.raises(ResourceExceeded) as refused:
        restricted(asked, settings, SolveCache())
    message = str(refused.value)
    for words in ("300 x 280", "84,000 cells", "743 MB", "1 MB", "--mechanism gaussian"):
        assert words in message


@pytest.mark.parametrize(
    ("shape", "joint_queries", "max_bytes", "advice"),
    [
        ((60, 60), True, 700_000_000, "wff"),
        ((60, 60), True, 500_000_000, "auto"),
        ((60, 60), False, 500_000_000, "residualplanner+"),
        ((9_000,), False, 2**32, "wff"),
        ((9_000,), False, 2**30, "auto"),
    ],
)
def test_the_advice_is_a_mechanism_that_fits(shape, joint_queries, max_bytes, advice):
    with pytest.raises(ResourceExceeded, match=f"--mechanism {advice.replace('+', '[+]')} or"):
        limits.check_dense(shape, SolverSettings(max_bytes=max_bytes), joint_queries)


def test_sizes_below_a_gibibyte_are_in_megabytes():
    with pytest.raises(ResourceExceeded, match=r"need 3 MB, above the ceiling of 1 MB"):
        limits.check_dense((200,), SolverSettings(max_bytes=2**20))
    with pytest.raises(ResourceExceeded, match=r"need 6\.7 GiB, above the ceiling of 477 MB"):
        limits.check_dense((10_000,), SolverSettings(max_bytes=500_000_000))
