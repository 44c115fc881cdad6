"""The targets of the fit: single columns, and a model that has them."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.generate.targets import denoise_model, positive_shares, single_targets
from adaptive_qs.residual import ReferenceModel, decompose, uniform_reference

from .helpers import residuals_of

DOMAIN = Domain((Attribute("gain", 40), Attribute("kind", 6, ordered=False), Attribute("sex", 2)))
PAIRS = [(0, 1), (0, 2), (1, 2)]


def table(rows=6000, seed=0):
    """Gain is zero for nine rows in ten; kind and sex depend on it and on each other."""
    rng = np.random.default_rng(seed)
    gain = np.where(rng.random(rows) < 0.9, 0, rng.integers(5, 12, rows))
    sex = (rng.random(rows) < np.where(gain > 0, 0.8, 0.4)).astype(int)
    kind = np.minimum(rng.geometric(np.where(sex, 0.7, 0.4)) - 1, 5)
    return np.stack([gain, kind, sex], axis=1).astype(np.int32)


@pytest.fixture(scope="module")
def measured():
    model = residuals_of(table(), DOMAIN, PAIRS, noise_std=30.0, seed=2)
    singles = single_targets(model)
    return model, singles, denoise_model(model, singles)


def test_ordered_and_unordered_columns_are_treated_as_such(measured):
    model, singles, _ = measured
    shuffled = Domain(tuple(Attribute(a.name, a.size, ordered=False) for a in DOMAIN.attributes))
    other = single_targets(ReferenceModel(shuffled, model.reference, model.estimates))
    assert (singles[0].counts != other[0].counts).any()
    np.testing.assert_array_equal(singles[1].counts, other[1].counts)


def test_the_denoised_model_has_these_columns_and_the_measured_interactions(measured):
    model, singles, denoised = measured
    for i, target in enumerate(singles):
        found = decompose(denoised.marginal((i,)), (i,), (i,))
        np.testing.assert_allclose(found, decompose(target.counts, (i,), (i,)), atol=1e-9)
    for pair in PAIRS:
        before, after = (decompose(m.marginal(pair), pair, pair) for m in (model, denoised))
        np.testing.assert_allclose(before, after, atol=1e-9)
        assert denoised.precision(pair) == model.precision(pair)


def test_columns_without_a_measurement_are_those_of_the_reference():
    model = ReferenceModel(DOMAIN, uniform_reference(DOMAIN))
    model.update((), np.array(100.0), 1.0)
    singles = single_targets(model)
    for target, share in zip(singles, positive_shares(singles)):
        np.testing.assert_allclose(target.counts, 100 / target.counts.size)
        np.testing.assert_allclose(share, 1 / target.counts.size)
    assert denoise_model(model, singles).estimates.keys() == {()}
