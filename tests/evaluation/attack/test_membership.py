"""The whole game: leaks are seen, independence is not accused, and promises are kept."""

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.data.table import CodedTable
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation.attack import closeness
from adaptive_qs.evaluation.attack.game import Promise
from adaptive_qs.evaluation.attack.measure import ATTACKS, CLOSENESS, measure_membership

DOMAIN = Domain(tuple(Attribute(f"a{i}", 6, ordered=i % 2 == 0) for i in range(8)))


def population(rows, seed):
    """Rows whose attributes depend on one hidden class."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 3, rows)
    columns = [(hidden * (i % 3) + rng.integers(0, 4, rows)) % 6 for i in range(len(DOMAIN))]
    return CodedTable.from_codes(DOMAIN, columns)


TRUE, FRESH, CONTROL = population(1_000, 1), population(1_000, 2), population(1_000, 3)


def test_a_copy_of_the_table_is_seen_at_once():
    result = measure_membership(TRUE, TRUE, CONTROL, Promise(0.01, None, None, "given"))
    assert result.scores[0].attack == CLOSENESS
    assert result.scores[0].lower > 0.5 > result.bound
    assert result.scores[0].auc > 0.9


def test_a_table_that_is_independent_of_the_members_is_not_accused():
    # All intervals hold together with probability 1 - 1e-6, and the true advantage is 0.
    result = measure_membership(TRUE, FRESH, CONTROL, None, confidence=1 - 1e-6)
    assert {score.attack for score in result.scores} == set(ATTACKS)
    assert all(score.lower <= 0 <= score.upper for score in result.scores)
    assert result.bound is None
    assert (result.members, result.non_members) == (500, 500)


def test_strongest_attack_comes_first_and_workers_change_nothing():
    first, second = (measure_membership(TRUE, TRUE, CONTROL, None, 5, w) for w in (1, 3))
    assert first == second
    advantages = [score.advantage for score in first.scores]
    assert advantages == sorted(advantages, reverse=True)
    assert measure_membership(TRUE, TRUE, CONTROL, None, 6) != first


def test_advantage_over_real_releases_obeys_their_bound():
    rho = 0.01
    frame = {a.name: codes for a, codes in zip(DOMAIN.attributes, TRUE.columns)}
    schema = {
        "version": 1,
        "columns": [
            {"name": a.name, "type": "integer", "min": 0, "max": a.size - 1}
            for a in DOMAIN.attributes
        ],
    }
    model = Synthesizer(rho=rho).fit(pd.DataFrame(frame), schema=schema)
    sample = model.sample(1_000, seed=1)
    codes = [np.asarray(sample[a.name].to_numpy(), dtype=np.int64) for a in DOMAIN.attributes]
    synthetic = CodedTable.from_codes(DOMAIN, codes)
    promise = Promise(rho, None, None, "given")
    result = measure_membership(TRUE, synthetic, CONTROL, promise, confidence=1 - 1e-6)
    assert 0 < result.bound < 0.15
    assert all(score.lower <= result.bound for score in result.scores)


def test_progress_ends_with_the_last_step():
    steps = []
    measure_membership(TRUE, FRESH, CONTROL, None, progress=lambda *step: steps.append(step))
    assert steps[-1][0] == steps[-1][1] == len(steps)


def test_few_control_rows_are_named_with_what_they_can_tell():
    result = measure_membership(TRUE, FRESH, population(40, 4), None)
    assert any("no advantage below about" in said for said in result.limitations)
    result = measure_membership(TRUE, FRESH, population(16, 4), None)
    assert result.members == 8
    assert result.scores[0].lower > -1.01


def test_overlapping_control_rows_are_named():
    columns = [np.concatenate([a, b[:100]]) for a, b in zip(CONTROL.columns, TRUE.columns)]
    control = CodedTable.from_codes(DOMAIN, columns)
    result = measure_membership(TRUE, FRESH, control, None)
    assert any("overlaps the true one" in said for said in result.limitations)
    honest = measure_membership(TRUE, FRESH, CONTROL, None)
    assert not any("overlaps" in said for said in honest.limitations)


def test_bad_input_is_refused_in_one_line():
    other = CodedTable.from_codes(Domain.from_sizes({"z": 2}), [np.zeros(50, dtype=int)])
    within = CodedTable.from_codes(DOMAIN, [column[:60] for column in TRUE.columns])
    for control, message in [
        (other, "different attributes"),
        (population(15, 1), "hold out more"),
        (within, "every control row is a row of the true table"),
    ]:
        with pytest.raises(DataError, match=message) as caught:
            measure_membership(TRUE, FRESH, control, None)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="confidence"):
        measure_membership(TRUE, FRESH, CONTROL, None, confidence=1.0)


def test_control_rows_that_are_all_true_rows_by_chance_are_named():
    domain = Domain.from_sizes({"a": 2, "b": 2})
    rng = np.random.default_rng(1)
    true, made, control = (
        CodedTable.from_codes(domain, rng.integers(0, 2, (2, rows))) for rows in (300, 300, 200)
    )
    result = measure_membership(true, made, control, None)
    assert any("every control row is also a row of the true table" in s for s in result.limitations)


def test_seeds_that_no_library_takes_are_refused():
    for seed in (-1, 2**32):
        with pytest.raises(InputError, match="give 0 to 4,294,967,295"):
            measure_membership(TRUE, FRESH, CONTROL, None, seed)


def test_of_very_many_columns_fewer_rows_are_compared_and_that_is_named(monkeypatch):
    monkeypatch.setattr(closeness, "MAX_CELLS", 800)
    result = measure_membership(TRUE, FRESH, CONTROL, None)
    assert any("taken from 100 rows of either kind at most" in said for said in result.limitations)
