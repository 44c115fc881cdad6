"""One contract for all bases, against explicit Kronecker matrices (Fuentes et al., eq. 3 and 4)."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_qs.residual.arrays import decompose, reconstruct, smear
from adaptive_qs.residual.basis import CenteredBasis, ContrastBasis, StrategyBasis

from .oracles import all_subsets, centering, difference, kron, ones


def prefix_matrix(n):
    """Centered prefix sums: n − 1 rows, none orthogonal to another."""
    return np.tril(np.ones((n, n)))[:-1] @ centering(n)


def redundant_matrix(n):
    """All pairwise differences: more rows than rank."""
    rows = [np.eye(n)[i] - np.eye(n)[j] for i in range(n) for j in range(i)]
    return np.array(rows).reshape(-1, n)


# name -> (basis of size n, its analysis matrix B of shape (rank, n))
BASES = {
    "contrast": (ContrastBasis, difference),
    "centered": (CenteredBasis, centering),
    "prefix": (lambda n: StrategyBasis(prefix_matrix(n)), prefix_matrix),
    "redundant": (lambda n: StrategyBasis(redundant_matrix(n)), redundant_matrix),
}
SIZES = [1, 2, 3, 7]
by_basis = pytest.mark.parametrize("kind", BASES)

# Values up to 1e6 and at most 7**3 cells: rounding stays far below 1e-7.
values = st.floats(-1e6, 1e6)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=4)
arrays = shapes.flatmap(lambda shape: hnp.arrays(float, shape, elements=values))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-7)


@by_basis
@pytest.mark.parametrize("size", SIZES)
def test_analysis_and_synthesis_are_a_matrix_and_its_pseudo_inverse(kind, size):
    make, matrix = BASES[kind]
    basis, b = make(size), matrix(size)
    assert basis.size == size
    assert basis.rank == b.shape[0]
    close(basis.analyse(np.eye(size), 0), b)
    close(basis.synthesise(np.eye(basis.rank), 0), np.linalg.pinv(b))


@by_basis
@pytest.mark.parametrize("size", SIZES)
def test_synthesis_undoes_analysis_up_to_the_mean(kind, size):
    basis = BASES[kind][0](size)
    matrix = basis.synthesise(basis.analyse(np.eye(size), 0), 0)
    close(matrix, centering(size))


@by_basis
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_basis_acts_along_its_axis_only(kind, axis):
    make, matrix = BASES[kind]
    array = np.random.default_rng(0).normal(size=(3, 4, 2))
    basis, b = make(array.shape[axis]), matrix(array.shape[axis])
    close(basis.analyse(array, axis), np.moveaxis(np.tensordot(b, array, (1, axis)), 0, axis))


@by_basis
@given(array=arrays)
def test_decompose_is_the_kronecker_matrix_of_equation_3(kind, array):
    make, matrix = BASES[kind]
    clique = tuple(range(3, 3 + array.ndim))
    bases = [make(n) for n in array.shape]
    for tau in all_subsets(clique):
        factors = [matrix(n) if i in tau else ones(n) for i, n in zip(clique, array.shape)]
        shape = [basis.rank for i, basis in zip(clique, bases) if i in tau]
        close(decompose(array, clique, tau, bases), (kron(factors) @ array.ravel()).reshape(shape))


@by_basis
@given(array=arrays)
def test_reconstruct_is_the_kronecker_matrix_of_equation_4(kind, array):
    make, matrix = BASES[kind]
    clique = tuple(range(array.ndim))
    bases = [make(n) for n in array.shape]
    for tau in all_subsets(clique):
        values = decompose(array, clique, tau, bases)
        factors = [
            np.linalg.pinv(matrix(n)) if i in tau else ones(n).T / n
            for i, n in zip(clique, array.shape)
        ]
        close(
            reconstruct(values, tau, clique, bases),
            (kron(factors) @ values.ravel()).reshape(array.shape),
        )


@by_basis
@given(array=arrays)
def test_the_parts_add_up_to_the_marginal(kind, array):
    """Fuentes et al., Proposition 3.1."""
    clique = tuple(range(array.ndim))
    bases = [BASES[kind][0](n) for n in array.shape]
    parts = (
        reconstruct(decompose(array, clique, tau, bases), tau, clique, bases)
        for tau in all_subsets(clique)
    )
    close(sum(parts), array)


@by_basis
@given(array=arrays)
def test_a_part_holds_its_own_residual_and_no_other(kind, array):
    clique = tuple(range(array.ndim))
    bases = [BASES[kind][0](n) for n in array.shape]
    for tau, sigma in product(all_subsets(clique), repeat=2):
        residual = decompose(array, clique, tau, bases)
        part = reconstruct(residual, tau, clique, bases)
        expected = residual if sigma == tau else np.zeros(())
        found = decompose(part, clique, sigma, bases)
        close(found, np.broadcast_to(expected, found.shape))


def test_bases_may_differ_between_axes():
    array = np.random.default_rng(1).normal(size=(3, 2, 4))
    bases = [ContrastBasis(3), CenteredBasis(2), StrategyBasis(prefix_matrix(4))]
    matrices = [difference(3), centering(2), prefix_matrix(4)]
    close(
        decompose(array, (0, 1, 2), (0, 1, 2), bases),
        (kron(matrices) @ array.ravel()).reshape(2, 2, 3),
    )


def test_example_of_appendix_a():
    """The paper prints 32 for the last value of the second row below; each row sums to zero."""
    marginal = np.array([[7, 5, 2], [3, 5, 11], [10, 2, 11], [9, 18, 17]])
    bases = [ContrastBasis(4), ContrastBasis(3)]
    residuals = {
        (): 100,
        (0,): [5, 9, 30],
        (1,): [1, 12],
        (0, 1): [[4, 13], [-6, 6], [11, 13]],
    }
    twelfths = {
        (): np.full((4, 3), 100),
        (0,): np.repeat([[-44], [-24], [-8], [76]], 3, axis=1),
        (1,): np.repeat([[-13, -10, 23]], 4, axis=0),
        (0, 1): [[41, 14, -55], [-27, -6, 33], [41, -58, 17], [-55, 50, 5]],
    }
    for tau, expected in residuals.items():
        residual = decompose(marginal, (0, 1), tau, bases)
        np.testing.assert_array_equal(residual, expected)
        part = reconstruct(residual, tau, (0, 1), bases)
        close(part, np.array(twelfths[tau]) / 12)


@given(arrays.filter(lambda a: a.ndim > 0), st.integers(1, 5))
def test_smear_spreads_evenly_and_keeps_the_sum(array, size):
    summed = array.sum(axis=0, keepdims=True)
    smeared = smear(summed, 0, size)
    assert smeared.shape == (size, *array.shape[1:])
    close(smeared.sum(axis=0, keepdims=True), summed)
    close(smeared, np.broadcast_to(smeared[:1], smeared.shape))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(3), "sum to zero"),
        (np.ones(3), "sum to zero"),
        (np.array([[1.0, -1.0, 0.0]]), "span"),
    ],
)
def test_a_matrix_that_is_no_strategy_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        StrategyBasis(matrix)
