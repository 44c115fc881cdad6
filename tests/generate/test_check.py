"""Drawn rows against every measured marginal: planted bias is found, healthy tables are not."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.generate import check, linked
from adaptive_qs.generate.check import Check
from adaptive_qs.generate.rows import synthesize_rows
from adaptive_qs.privacy.budget import GuardRailWarning
from adaptive_qs.table import rule_sampling

MESSAGE = "contradicts the release"


def made(rows: int = 3_000, seed: int = 0) -> pd.DataFrame:
    """Five columns; the third depends on the first two, and the last one has rare values."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, rows), rng.integers(0, 3, rows)
    c = (a + b + rng.integers(0, 2, rows)) % 6
    d = np.minimum(rng.geometric(0.2, rows) - 1, 19)
    e = np.minimum(rng.geometric(0.6, rows) - 1, 9) * (a > 0)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d, "e": e})


SIZES = {"a": 4, "b": 3, "c": 6, "d": 20, "e": 10}
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": name, "type": "integer", "min": 0, "max": size - 1} for name, size in SIZES.items()
    ],
}
RULED = {**SCHEMA, "rules": ["a = 0 -> e = 0"]}


def fitted(epsilon: float, schema=SCHEMA, seed: int = 1, **options) -> Synthesizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Synthesizer(epsilon=epsilon, insecure_seed=seed, workers=1, **options)
        return found.fit(made(), schema=schema)


def shift(part: float, column: int = 0, draw=synthesize_rows):
    """A generator of which a part of the rows have 0 in one column."""

    def generate(*args, **options):
        for rows in draw(*args, **options):
            rows = rows.copy()
            rows[: int(part * len(rows)), column] = 0
            yield rows

    return generate


@pytest.fixture
def planted(monkeypatch):
    """Plant a generator in place of the one there is."""
    return lambda generate: monkeypatch.setattr(
        "adaptive_qs.release.release.synthesize_rows", generate
    )


def test_exchanges_end_after_a_part_of_the_rows(planted, monkeypatch):
    """Each takes long, and rows that are off everywhere would have very many."""
    release, exchanged, exchange = fitted(10.0).release_, [], check._exchange

    def count(rows, column, own, inside, over, *others):
        exchanged[-1].add(column)
        exchange(rows, column, own, inside, over, *others)

    def shuffle(*args, **options):
        for rows in synthesize_rows(*args, **options):
            yield np.random.default_rng(0).permuted(rows, axis=0)

    monkeypatch.setattr(check, "_exchange", count)
    monkeypatch.setattr(check, "_sum_errors", lambda gaps: 0.0)  # one round
    planted(shuffle)
    for part in (1e9, 0.01):
        monkeypatch.setattr(check, "MOST_EXCHANGED", part)
        exchanged.append(set())
        release.draw(seed=3).coded()
    assert len(exchanged[0]) > 1 == len(exchanged[1])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("schema", [SCHEMA, RULED], ids=["plain", "ruled"])
@pytest.mark.parametrize("ways", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3))])
def test_healthy_tables_are_not_found(epsilon, schema, ways):
    """Each is found with a chance of at most 1e-3."""
    release = fitted(epsilon, schema, workload=ways).release_
    for rows in (None, 500):
        drawing = release.draw(rows, seed=3)
        drawing.coded()
        assert not drawing.contradictions
        assert not release.check().gaps(_codes(release, rows))


def _codes(release, rows=None):
    """Rows as the generator makes them, without a repair."""
    return np.concatenate(list(release.draw(rows, 3).parts._pages))


@pytest.mark.parametrize("where", ["a = 1", "d >= 3"])
@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_conditional_samples_are_compared_with_what_was_measured_of_them(where, epsilon):
    release = fitted(epsilon).release_
    drawing = release.draw(None, 2, where=where)
    drawing.coded()
    assert not drawing.contradictions
    wrong = np.tile(np.array([1, 0, 0, 3, 0], np.int32), (2_000, 1))
    assert epsilon < 1 or drawing.parts.check.gaps(wrong)


@pytest.mark.parametrize("where", ["a >= 3", "a >= 1"])
def test_conditional_samples_are_repaired(where, monkeypatch):
    """A quarter of the rows is moved; rows that were selected stay in the numbers they have."""
    release = fitted(10.0, workload=2).release_
    monkeypatch.setattr(linked, "draw_pages", shift(0.25, 3, linked.draw_pages))
    drawing = release.draw(2_000, 3, where=where)
    table = pa.concat_tables(drawing.pages()).to_pandas()
    assert not drawing.contradictions
    likely = made().query(where)
    assert (table.d == 0).mean() == pytest.approx((likely.d == 0).mean(), abs=0.06)
    assert len(table.query(where)) == 2_000


@pytest.mark.slow
def test_rows_of_given_attributes_are_repaired_in_their_order():
    release = fitted(5.0).release_
    check, rows = release.check(given=(0, 1)), _codes(release)
    rows[:700, 3] = 0
    before = rows.copy()
    assert check.gaps(rows)
    repaired, left = check.repaired(rows, 1, 3)
    assert not left
    np.testing.assert_array_equal(repaired[:, :2], before[:, :2])


@pytest.mark.parametrize("given", [(), (4,)])
def test_pairs_are_repaired_by_exchanges_that_leave_single_columns_and_zeros(given):
    """Dependence of two columns is lost in a third of the rows; no other pair suffers for it."""
    release = fitted(10.0, RULED, workload=2).release_
    check, right = release.check(given=given), _codes(release)
    rows = right.copy()
    rows[:1_000, 2] = np.random.default_rng(1).permutation(rows[:1_000, 2])
    assert {gap.clique for gap in check.gaps(rows)} == {(0, 2), (1, 2)}
    repaired, left = check.repaired(rows, 1, 3)
    assert not left
    assert not (repaired[repaired[:, 0] == 0, 4] > 0).any()
    for column, size in enumerate(SIZES.values()):
        counts = (np.bincount(part[:, column], minlength=size) for part in (rows, repaired))
        np.testing.assert_array_equal(*counts)
    assert (rows[:, [0, 3, 4]] == repaired[:, [0, 3, 4]]).all()
    assert (check.repaired(rows, 1, 3)[0] == repaired).all()


def test_columns_with_zeros_are_repaired_by_rows_that_are_dropped_and_repeated():
    """Exchanges leave them. Cells that are clearly off come first, and all of them if need be."""
    release = fitted(1.0, RULED, workload=2).release_
    check, rows = release.check(), _codes(release)
    rows[np.flatnonzero((rows[:, 0] == 1) & (rows[:, 4] == 0))[:300], 4] = 1
    assert {(4,), (0, 4)} <= {gap.clique for gap in check.gaps(rows)}
    repaired, left = check.repaired(rows, 1, 3)
    assert not left
    seen = {*map(tuple, rows.tolist())}
    assert {*map(tuple, repaired.tolist())} <= seen


@pytest.mark.slow
def test_rows_that_values_under_rules_replace_are_checked(monkeypatch):
    """Rules that no values meet take rows away after the check of the codes; it looks again."""
    release = fitted(5.0, RULED).release_
    draw = rule_sampling.drawn_under_rules

    def replace(codes, *args):
        codes = {name: column.copy() for name, column in codes.items()}
        codes["d"][: len(codes["d"]) // 2] = 19
        return draw(codes, *args)

    monkeypatch.setattr(rule_sampling, "drawn_under_rules", replace)
    for where in (None, "a <= 2"):
        drawing = release.draw(3_000, 3, where=where)
        for page in drawing.pages():
            assert len(page) == 3_000
        assert "d" in {name for found in drawing.contradictions for name in found.columns}


@pytest.mark.slow
def test_persons_with_several_rows():
    table = made().assign(who=np.arange(3_000) // 3)
    schema = {**SCHEMA, "person": "who"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Synthesizer(epsilon=5, insecure_seed=1, rows_per_person=3, workers=1)
        release = found.fit(table, schema=schema).release_
    assert not release.check().gaps(_codes(release))
    rows = _codes(release)
    rows[: len(rows) // 2, 0] = 0
    assert release.check().gaps(rows)


@pytest.mark.slow
def test_a_column_that_is_shifted_is_found_and_repaired(planted):
    """A quarter of the rows is moved; every count then is within chance of the measured one."""
    found = fitted(5.0)
    release = found.release_
    planted(shift(0.25))
    rows = _codes(release)
    gaps = release.check().gaps(rows)
    assert gaps[0].clique == (0,)
    assert gaps[0].errors > 10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = found.sample(seed=3)
    shares = np.bincount(table.a, minlength=4) / len(table)
    np.testing.assert_allclose(shares, np.bincount(made().a) / 3_000, atol=0.03)
    assert np.bincount(rows[:, 0])[0] / len(rows) > 0.4
    pd.testing.assert_frame_equal(table, found.sample(seed=3))


def test_what_cannot_be_repaired_is_a_warning(planted):
    found = fitted(5.0)
    planted(shift(1.0))
    with pytest.warns(GuardRailWarning, match=MESSAGE) as said:
        found.sample(seed=3)
    assert "a = 0 has" in str(said[0].message)


@pytest.mark.slow
def test_the_commands_say_so(tmp_path, monkeypatch, capsys, planted):
    monkeypatch.chdir(tmp_path)
    made().to_csv("t.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    planted(shift(1.0))
    command = ["synthesize", "t.csv", "--schema", "s.json", "--epsilon", "5", "--json"]
    assert main([*command, "--release", "r.zip", "--out", "o.csv", "--seed", "3"]) == 0
    said = capsys.readouterr()
    assert MESSAGE in said.err
    assert json.loads(said.out)["contradictions"][0]["columns"] == ["a"]
    sidecar = json.loads((tmp_path / "o.csv.manifest.json").read_text())
    assert sidecar["sampling"]["contradictions"][0]["cell"] == ["0"]
    assert main(["ledger", "verify", "--release", "o.csv"]) in (0, 2)
    capsys.readouterr()
    assert main(["sample", "r.zip", "--out", "p.csv", "--rows", "900", "--json"]) == 0
    said = capsys.readouterr()
    assert MESSAGE in said.err
    assert json.loads(said.out)["contradictions"][0]["standard_errors"] > 5


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_codes_are_compared_at_their_level(seed):
    """Marginals over groups are counted over the groups."""
    release = fitted(0.2, seed=seed).release_
    check = release.check()
    rows = _codes(release)
    assert not check.gaps(rows)
    for clique in check._cliques:
        counts = np.bincount(check._cells(rows, clique), minlength=check.domain.size(clique))
        assert counts.sum() == len(rows)


def test_the_chance_of_a_false_alarm_is_that_of_a_fresh_sample():
    """Fresh samples of the measured product itself are never found in 200 draws: with a chance of
    1e-3 each, two or more are found with a chance of 2 %."""
    release = fitted(10.0, workload=1).release_
    check = release.check()
    assert isinstance(check, Check)
    model, rng = release.model(), np.random.default_rng(0)
    shares = [np.maximum(model.marginal((i,)), 0) for i in range(5)]
    found = 0
    for _ in range(200):
        columns = [rng.choice(s.size, 3_000, p=s / s.sum()) for s in shares]
        found += bool(check.gaps(np.stack(columns, axis=1).astype(np.int32)))
    assert found <= 1


def test_rows_that_no_weight_is_left_for_are_kept():
    """All rows of a page can lie in cells that should be empty: repairs do not empty the page."""
    found = check._pick(np.zeros(50), np.random.default_rng(1))
    assert sorted(found) == [*range(50)]
