"""The lazy model, and residuals of marginals, against dense tables and matrices."""

from __future__ import annotations

from functools import reduce
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from adaptive_qs.domain import Domain
from adaptive_qs.residual import ReferenceModel, ResidualEstimate, decompose, uniform_reference

SIZES = (2, 3, 4, 2)
DOMAIN = Domain.from_sizes(dict(zip("abcd", SIZES)))
EVERYTHING = (0, 1, 2, 3)
EVERY_CLIQUE = [c for k in range(5) for c in combinations(EVERYTHING, k)]


def kron(matrices):
    return reduce(np.kron, matrices, np.ones((1, 1)))


def centering(n):
    return np.eye(n) - np.ones((n, n)) / n


def marginal(table, clique):
    """Sum of a full table over all other axes."""
    return table.sum(axis=tuple(k for k in range(table.ndim) if k not in clique))


def all_subsets(clique):
    return [tau for k in range(len(clique) + 1) for tau in combinations(clique, k)]


def spread(component, inner, outer, factors):
    """component ⊗ (⊗_{k ∈ outer∖inner} factors[k]) by one einsum."""
    operands = [component, list(inner)]
    for k in outer:
        if k not in inner:
            operands += [factors[k], [k]]
    return np.einsum(*operands, list(outer))


def reconstruct(values, residual, clique, sizes):
    """The part of a marginal that a residual explains (Fuentes et al., Algorithm 2)."""
    return spread(values, residual, clique, {i: np.full(n, 1 / n) for i, n in zip(clique, sizes)})


def full_table(sizes, reference, estimates):
    """p̂ of the reference model from scratch: the recursion for c_τ, then Σ c_τ ⊗ q."""
    everything = tuple(range(len(sizes)))
    tilted = [q - q.mean() for q in reference]
    components = {}
    for tau in sorted(estimates, key=len):
        c = np.array(estimates[tau], dtype=float)
        for sigma in all_subsets(tau)[:-1]:
            if sigma in components:
                c = c - spread(components[sigma], sigma, tau, tilted)
        components[tau] = c
    table = np.zeros(sizes)
    for tau, c in components.items():
        table += spread(c, tau, everything, reference)
    return table


def centered(array):
    """⊗Π_i applied as one Kronecker matrix to the flattened array."""
    return (kron(map(centering, np.shape(array))) @ np.ravel(array)).reshape(np.shape(array))


cliques = st.sets(st.sampled_from(EVERYTHING), max_size=4).map(lambda s: tuple(sorted(s)))
measured_sets = st.lists(cliques, max_size=8, unique=True)
seeds = st.integers(0, 2**32 - 1)


def random_reference(rng, sizes=SIZES):
    return tuple(rng.dirichlet(np.ones(n)) * 0.9 + 0.1 / n for n in sizes)


def random_values(rng, clique, sizes=SIZES):
    return centered(rng.normal(scale=100, size=[sizes[i] for i in clique]))


def measured_model(measured, seed, reference=None):
    rng = np.random.default_rng(seed)
    model = ReferenceModel(DOMAIN, reference or random_reference(rng))
    for tau in measured:
        model.update(tau, random_values(rng, tau), 1.0)
    return model


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-7)


def assert_equals_oracle(model, reference, values):
    table = full_table(SIZES, reference, values)
    for clique in EVERY_CLIQUE:
        close(model.marginal(clique), marginal(table, clique))


@given(st.lists(cliques, max_size=12), seeds)
def test_updates_in_any_order_equal_the_model_from_scratch(sequence, seed):
    """Cliques come in random order, some several times, supersets before their subsets or after."""
    rng = np.random.default_rng(seed)
    reference = random_reference(rng)
    model = ReferenceModel(DOMAIN, reference)
    sums, precisions = {}, {}
    for tau in sequence:
        z, precision = random_values(rng, tau), rng.uniform(0.1, 10)
        model.update(tau, z, precision)
        sums[tau] = sums.get(tau, 0) + precision * z
        precisions[tau] = precisions.get(tau, 0) + precision
    averages = {tau: sums[tau] / precisions[tau] for tau in sums}
    for tau, average in averages.items():
        close(model.estimates[tau].values, average)
        assert model.precision(tau) == pytest.approx(precisions[tau])
    assert_equals_oracle(model, reference, averages)


@given(measured_sets, seeds)
def test_a_uniform_reference_is_grem_mle(measured, seed):
    """Fuentes et al., Algorithm 3: μ̂_γ = Σ_{τ⊆γ} Recon(z_τ, τ, γ)."""
    model = measured_model(measured, seed, uniform_reference(DOMAIN))
    for clique in EVERY_CLIQUE:
        parts = [
            reconstruct(model.estimates[tau].values, tau, clique, DOMAIN.shape(clique))
            for tau in all_subsets(clique)
            if tau in model.estimates
        ]
        close(model.marginal(clique), sum(parts, np.zeros(DOMAIN.shape(clique))))


def test_with_one_way_measurements_only_the_estimate_is_independence():
    """If q are the normalised one-way marginals, nothing but their product remains."""
    rng = np.random.default_rng(5)
    shares = random_reference(rng)
    model = ReferenceModel(DOMAIN, shares)
    model.update((), np.array(1000.0), 1.0)
    for i, share in enumerate(shares):
        model.update((i,), centered(1000 * share), 1.0)
    expected = 1000 * np.einsum("a,b,c,d", *shares)
    close(model.marginal(EVERYTHING), expected)


def test_an_attribute_of_one_value_changes_nothing():
    rng = np.random.default_rng(6)
    sizes = (3, 1, 2)
    reference = random_reference(rng, sizes)
    model = ReferenceModel(Domain.from_sizes(dict(zip("abc", sizes))), reference)
    for tau in [(), (0,), (0, 2)]:
        model.update(tau, random_values(rng, tau, sizes), 1.0)
    close(model.marginal((0, 1, 2))[:, 0, :], model.marginal((0, 2)))
    close(model.marginal((1,)), [model.total])


def test_measurements_are_averaged_by_inverse_variance():
    first = ResidualEstimate(np.array([3.0, -3.0]), 1.0)
    merged = first.merged(np.array([-1.0, 1.0]), 3.0)
    close(merged.values, [0.0, 0.0])
    assert merged.precision == 4.0


def test_the_average_has_the_variance_its_precision_states():
    """n = 20,000 pairs; a variance errs by sqrt(2/n) = 1 % relative; 5 % is 5 of these (6e-7)."""
    rng = np.random.default_rng(7)
    n, variances = 20_000, (4.0, 1.0)
    a, b = (rng.normal(scale=np.sqrt(v), size=n) for v in variances)
    merged = ResidualEstimate(a, 1 / variances[0]).merged(b, 1 / variances[1])
    assert merged.values.var() * merged.precision == pytest.approx(1, abs=0.05)


def test_a_model_does_not_share_memory_with_what_it_is_given_or_returns():
    values = np.array([1.0, -1.0])
    model = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    model.update((0,), values, 1.0)
    before = model.marginal((0,))
    model.marginal((0,))[...] = 99.0
    np.testing.assert_array_equal(model.marginal((0,)), before)
    model.update((0,), -values, 1.0)
    np.testing.assert_array_equal(values, [1.0, -1.0])


def test_an_empty_model_knows_nothing():
    model = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    assert model.total == 0
    assert model.precision((0,)) == 0
    assert not model.marginal((0, 2)).any()
    assert not model.estimates


@pytest.mark.parametrize(
    ("position", "bad", "message"),
    [
        (0, np.array([1.0, 0.0]), "strictly positive"),
        (0, np.array([1.5, -0.5]), "strictly positive"),
        (0, np.array([0.6, 0.6]), "sum to 1"),
        (0, np.array([np.nan, 1.0]), "strictly positive"),
        (1, np.array([0.5, 0.5]), "of its size"),
    ],
)
def test_a_reference_that_is_no_positive_distribution_is_refused(position, bad, message):
    reference = list(uniform_reference(DOMAIN))
    reference[position] = bad
    with pytest.raises(ValueError, match=message):
        ReferenceModel(DOMAIN, reference)


def test_a_reference_of_another_number_of_attributes_is_refused():
    with pytest.raises(ValueError, match="one distribution per attribute"):
        ReferenceModel(DOMAIN, uniform_reference(DOMAIN)[:3])


# Residuals of marginals against explicit Kronecker matrices (Fuentes et al., eq. 3 and 4).

# Values up to 1e6 and at most 4**4 cells: rounding stays far below 1e-7.
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=4)
arrays = shapes.flatmap(lambda shape: hnp.arrays(float, shape, elements=st.floats(-1e6, 1e6)))


@given(arrays)
def test_a_residual_is_the_kronecker_matrix_of_equation_3(array):
    clique = tuple(range(3, 3 + array.ndim))
    for tau in all_subsets(clique):
        factors = [
            centering(n) if i in tau else np.ones((1, n)) for i, n in zip(clique, array.shape)
        ]
        shape = [n for i, n in zip(clique, array.shape) if i in tau]
        close(decompose(array, clique, tau), (kron(factors) @ array.ravel()).reshape(shape))


@given(arrays)
def test_the_parts_add_up_to_the_marginal_and_hold_their_own_residual_only(array):
    """Fuentes et al., Proposition 3.1."""
    clique = tuple(range(array.ndim))
    residuals = {tau: decompose(array, clique, tau) for tau in all_subsets(clique)}
    parts = {tau: reconstruct(r, tau, clique, array.shape) for tau, r in residuals.items()}
    close(sum(parts.values()), array)
    for tau, sigma in product(parts, repeat=2):
        found = decompose(parts[tau], clique, sigma)
        expected = residuals[tau] if sigma == tau else np.zeros(())
        close(found, np.broadcast_to(expected, found.shape))


def test_example_of_appendix_a():
    """The paper prints 32 for the last value of the second row below; each row sums to zero."""
    marginal = np.array([[7, 5, 2], [3, 5, 11], [10, 2, 11], [9, 18, 17]])
    residuals = {(): 100, (0,): [5, 9, 30], (1,): [1, 12], (0, 1): [[4, 13], [-6, 6], [11, 13]]}
    twelfths = {
        (): np.full((4, 3), 100),
        (0,): np.repeat([[-44], [-24], [-8], [76]], 3, axis=1),
        (1,): np.repeat([[-13, -10, 23]], 4, axis=0),
        (0, 1): [[41, 14, -55], [-27, -6, 33], [41, -58, 17], [-55, 50, 5]],
    }
    for tau, expected in residuals.items():
        residual = decompose(marginal, (0, 1), tau)
        close(reconstruct(residual, tau, (0, 1), (4, 3)), np.array(twelfths[tau]) / 12)
        for axis in range(len(tau)):  # the paper writes differences to the first cell
            first, rest = np.split(residual, [1], axis=axis)
            residual = rest - first
        close(residual, expected)
