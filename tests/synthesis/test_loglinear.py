"""The Gibbs sampler against distributions obtained by enumeration."""

import numpy as np
import pytest

from adaptive_qs.synthesis.loglinear import LogLinearModel

from .helpers import assert_drawn_from, domain_of, histogram, random_loglinear

ROWS = 40_000


def rows_at(row, count=ROWS):
    return np.tile(np.array(row, dtype=np.int32), (count, 1))


def freeze(model, domain, row, free):
    """Concentrate every attribute but one on its value (odds of 1e12 against any other)."""
    for i, n in enumerate(domain.sizes):
        if i != free:
            ratio = np.full(n, 1e-6)
            ratio[row[i]] = 1e6
            model.scale((i,), ratio)


@pytest.mark.parametrize("free", [0, 1, 2])
@pytest.mark.parametrize("row", [(0, 0, 0), (1, 2, 3), (1, 0, 2)])
def test_an_attribute_is_drawn_from_its_exact_conditional(free, row):
    domain = domain_of(2, 3, 4)
    model, joint = random_loglinear(domain, [(0, 1), (1, 2), (0, 1, 2)], seed=1)
    freeze(model, domain, row, free)
    rows = rows_at(row)
    model.sweep(rows, key=7)
    index = tuple(slice(None) if i == free else row[i] for i in range(3))
    conditional = joint[index] / joint[index].sum()
    for i in range(3):
        if i != free:
            assert (rows[:, i] == row[i]).all()
    assert_drawn_from(np.bincount(rows[:, free], minlength=conditional.size), conditional)


@pytest.mark.parametrize("exponent", [5, -5])
@pytest.mark.parametrize("neighbours", [15, 16, 17, 33, 80])
def test_many_cliques_around_an_attribute_neither_overflow_nor_bias(neighbours, exponent):
    """Eighty weights near a limit multiply to 1e400 or 1e-400; the conditional stays exact."""
    domain = domain_of(4, *[2] * neighbours)
    cliques = [(0, k) for k in range(1, neighbours + 1)]
    rng = np.random.default_rng(2)
    model = LogLinearModel(domain, cliques, [np.ones(n) for n in domain.sizes], workers=1)
    row = [0, *rng.integers(0, 2, neighbours).tolist()]
    logs = np.zeros(4)
    for clique in cliques:
        factors = np.exp(rng.normal(scale=0.3, size=(4, 2))) * 10.0**exponent
        model.scale(clique, factors)
        logs += np.log(factors[:, row[clique[1]]])
    for k in range(1, neighbours + 1):
        model.scale((k,), np.where(np.arange(2) == row[k], 1e6, 1e-6))
    # The other attributes see attribute 0 as well, by a factor e^±2 at most: they stay frozen.
    rows = rows_at(row)
    model.sweep(rows, key=3)
    assert (rows[:, 1:] == row[1:]).all()
    conditional = np.exp(logs - logs.max())
    assert_drawn_from(np.bincount(rows[:, 0], minlength=4), conditional / conditional.sum())


@pytest.mark.parametrize(
    "cliques",
    [[], [(0, 1)], [(0, 1), (1, 2), (0, 2)], [(0, 1, 2)], [(0, 1, 3), (1, 2), (2, 3)]],
    ids=str,
)
def test_the_stationary_distribution_is_the_models(cliques):
    """From one state, thirty sweeps at mild dependence leave no trace of the start."""
    domain = domain_of(2, 3, 2, 2)
    model, joint = random_loglinear(domain, cliques, seed=4, spread=0.5)
    rows = rows_at((1, 2, 1, 0))
    for key in range(30):
        model.sweep(rows, key)
    assert_drawn_from(histogram(rows, domain), joint)


def test_a_sweep_keeps_the_models_distribution():
    """Rows drawn from the joint itself, with strong dependence, stay so after one sweep."""
    domain = domain_of(3, 4, 2)
    model, joint = random_loglinear(domain, [(0, 1), (1, 2), (0, 2)], seed=5, spread=2.0)
    cells = np.random.default_rng(0).choice(joint.size, size=ROWS, p=joint.ravel())
    rows = np.stack(np.unravel_index(cells, joint.shape), axis=1).astype(np.int32)
    model.sweep(rows, key=11)
    assert_drawn_from(histogram(rows, domain), joint)


def test_draws_of_rows_attributes_and_sweeps_are_independent():
    domain = domain_of(6, 6)
    model = LogLinearModel(domain, [], [np.ones(6)] * 2, workers=1)
    first, second = rows_at((0, 0)), rows_at((0, 0))
    model.sweep(first, key=100)
    model.sweep(second, key=101)
    uniform = np.full((6, 6), 1 / 36)
    for a, b in [
        (first[:, 0], first[:, 1]),
        (first[:, 0], second[:, 0]),
        (first[:, 0], second[:, 1]),
        (first[:-1, 0], first[1:, 0]),
        (first[:-1, 0], first[1:, 1]),
    ]:
        assert_drawn_from(np.bincount(6 * a + b, minlength=36), uniform)


def test_a_sweep_depends_on_the_key_and_not_on_the_workers():
    domain = domain_of(3, 4, 2)
    results = []
    for workers, key in [(1, 5), (2, 5), (3, 5), (1, 6)]:
        model, _ = random_loglinear(domain, [(0, 1), (1, 2)], seed=6, workers=workers)
        rows = rows_at((0, 0, 0), 1001)
        model.sweep(rows, key)
        results.append(rows)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != results[3]).any()


def test_an_impossible_value_is_hardly_ever_drawn():
    domain = domain_of(3)
    model = LogLinearModel(domain, [], [np.array([0.0, 5.0, 5.0])], workers=1)
    rows = rows_at((0,))
    model.sweep(rows, key=1)
    assert (rows > 0).all()  # probability 1e-9 each: a false alarm of 4e-5


def test_attributes_of_one_value_and_tables_of_one_row_or_none_sweep():
    domain = domain_of(1, 3, 1)
    model, _ = random_loglinear(domain, [(0, 1), (0, 2)], seed=7)
    for count in (0, 1, 2):
        rows = rows_at((0, 1, 0), count)
        model.sweep(rows, key=1)
        assert not rows[:, [0, 2]].any()
        assert ((rows >= 0) & (rows < 3)).all()
