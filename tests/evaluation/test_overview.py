"""What an analyst looks at first, against pandas and slow counting."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.table.schema import Schema

SCHEMA = Schema.parse({"version": 1, "columns": [
    {"name": "pickup", "type": "datetime", "min": "2023-01-01T00:00:00",
     "max": "2023-12-31T23:59:59", "granularity": "day", "missing": [""]},
    {"name": "birth date", "type": "date", "min": "1950-01-01", "max": "2000-12-31",
     "granularity": "year"},
    {"name": "tip", "type": "numeric", "edges": [0, 1, 2, 5, 10, 50], "decimals": 2,
     "missing": [""]},
    {"name": "fare", "type": "integer", "min": 0, "max": 999, "bins": 20},
    {"name": "kind", "type": "categorical", "values": list("abcd")},
    {"name": "child", "type": "categorical", "values": ["no", "yes"]},
]})  # fmt: skip


def trips(seed, rows=2_000):
    """Tips follow fares and the hour; no child is of kind a."""
    rng = np.random.default_rng(seed)
    hour = rng.choice(24, rows, p=np.arange(1, 25) / 300)
    fare = np.minimum(rng.gamma(2, 60, rows), 999).astype(int)
    kind = rng.choice(list("abcd"), rows, p=[0.4, 0.3, 0.2, 0.1])
    day = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), unit="D")
    birth = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 12_000, rows), unit="D")
    tip = np.round(np.minimum(fare / 100 + hour / 10 + rng.random(rows), 49), 2)
    return pd.DataFrame({
        "pickup": (day + pd.to_timedelta(hour * 3_600 + rng.integers(0, 3_600, rows), unit="s"))
        .where(rng.random(rows) < 0.95, pd.NaT),
        "birth date": birth,
        "tip": np.where(rng.random(rows) < 0.1, np.nan, tip),
        "fare": fare,
        "kind": kind,
        "child": np.where((kind != "a") & (rng.random(rows) < 0.3), "yes", "no"),
    })  # fmt: skip


TRUE = trips(1)
SHUFFLED = trips(2).assign(
    tip=lambda t: np.random.default_rng(3).permutation(t.tip),
    child=lambda t: np.random.default_rng(4).permutation(t.child),
)
FOUND = evaluate(TRUE, SHUFFLED, SCHEMA, 1)


def numbers(table):
    """The columns of numbers and dates as pandas has them."""
    return pd.DataFrame({
        name: table[name].astype("int64").where(table[name].notna()) if "datetime" in str(kind)
        else table[name]
        for name, kind in table.dtypes.items() if name not in ("kind", "child")
    }).astype(float)  # fmt: skip


def test_correlations_are_those_of_pandas_the_largest_change_first():
    """Ranks of all known cells, not only of rows with both: nearly pandas' where some miss."""
    for form, tolerance in (("pearson", 1e-9), ("spearman", 2e-3)):
        true, made = (numbers(t).corr(form) for t in (TRUE, SHUFFLED))
        end = "_by_ranks" * (form == "spearman")
        for c in FOUND.correlations:
            assert getattr(c, f"true{end}") == pytest.approx(true.loc[c.names], abs=tolerance)
            assert getattr(c, f"synthetic{end}") == pytest.approx(made.loc[c.names], abs=tolerance)
    first = FOUND.correlations[0]
    assert (len(FOUND.correlations), first.names, first.changed) == (6, ("tip", "fare"), True)
    assert "tip × fare (+0." in FOUND.findings["correlations"].said
    fresh = evaluate(TRUE, trips(5), SCHEMA, 1)
    assert fresh.findings["correlations"].word == "kept"


def test_profiles_are_the_shares_by_hour_weekday_and_month():
    found = {pair.name: pair for pair, _ in FOUND.profiles.parts}
    assert set(found) == {f"{part} of pickup" for part in ("hour", "weekday", "month")} | {
        "weekday of birth date", "month of birth date"}  # fmt: skip
    times = TRUE.pickup.dropna().dt
    for part, numbers, first in (("hour", times.hour, 0), ("weekday", times.day_of_week, 0),
                                 ("month", times.month, 1)):  # fmt: skip
        expected = numbers.value_counts(normalize=True)
        shares = found[f"{part} of pickup"].shares[0]
        assert shares == pytest.approx([expected[first + k] for k in range(len(shares))])
    assert (FOUND.findings["profiles"].word, FOUND.findings["profiles"].said) == ("kept", "")
    flat = TRUE.assign(pickup=TRUE.pickup.dt.normalize())
    moved = evaluate(TRUE, flat, SCHEMA, 1, compare="tip by hour")
    assert "hour of pickup (" in moved.findings["profiles"].said
    assert moved.verdict.uses["single columns"] != "good"
    (tips,) = moved.group_means.requested
    assert (tips.by, tips.labels[0], len(tips.labels)) == ("hour of pickup", "01:00", 23)
    hours = TRUE.groupby(TRUE.pickup.dt.hour).tip.mean()[1:]
    assert tips.means[0] == pytest.approx(hours.to_numpy())


def test_frequent_values_have_their_shares_of_all_rows():
    kinds = {v.value: v.true for v in FOUND.profiles.frequent if v.column == "kind"}
    assert kinds == pytest.approx(TRUE.kind.value_counts(normalize=True).to_dict())
    tips = TRUE.tip.value_counts(normalize=False) / len(TRUE)
    found = [v for v in FOUND.profiles.frequent if v.column == "tip"]
    assert sorted(v.true for v in found) == pytest.approx(sorted(tips.iloc[:10]))
    for value in found:
        assert value.synthetic == (SHUFFLED.tip == float(value.value)).mean()


def test_the_oddest_row_has_the_pair_of_values_that_is_rarest():
    """Against all cells of all pairs, counted one by one."""
    comparison, worst = FOUND.comparison, {}
    true, made = (np.stack(t.columns) for t in (FOUND.pair.true, FOUND.pair.synthetic))
    for i, j in combinations(range(len(true)), 2):
        surprise = [0.0]
        for (a, b), times in Counter(zip(made[i].tolist(), made[j].tolist())).items():
            expected = (true[i] == a).sum() * (true[j] == b).sum() / true.shape[1]
            seen = int(((true[i] == a) & (true[j] == b)).sum())
            if 2 * seen <= expected and (not seen or times > 2 * seen):
                both = [n for n in (seen, times) if n]  # of as many rows
                surprise.append(sum(n * math.log(2 * n / (seen + times)) for n in both))
                more = seen * math.log(seen / expected) if seen else 0.0
                surprise.append(expected - seen + more)
        worst[i, j] = max(surprise)
    for odd in comparison.pairs.odd:
        assert odd.surprise == pytest.approx(worst[odd.pair])
    first = FOUND.rules.odd[0]
    row = SHUFFLED.iloc[first.row]
    assert (row["kind"], row["child"], first.true) == ("a", "yes", 0)
    assert first.synthetic == ((SHUFFLED.kind == "a") & (SHUFFLED.child == "yes")).sum()
    assert "kind = a, child = yes" in str(FOUND.findings["rules"].figures[-1].rows[0])
    strange = (SHUFFLED.kind == "a") & (SHUFFLED.child == "yes")
    assert FOUND.rules.odd_share == comparison.pairs.rows_odd.mean() >= strange.mean()
    assert comparison.pairs.rows_odd[strange].all()
    assert "kind × child" in FOUND.findings["rules"].said


def test_dates_are_compared_in_days():
    later = TRUE.assign(**{"birth date": TRUE["birth date"] + pd.Timedelta(days=3_000)})
    found = evaluate(TRUE, later, SCHEMA, 1)
    text = str([[*found.findings["group_means"].figures[0].texts(99)]])
    assert text.count("+3,000 days") >= 8


def test_requested_comparisons_show_all_groups_with_dates_in_days():
    named = SCHEMA.changed(compare=("`birth date` by kind",))
    assert named.fingerprint == SCHEMA.fingerprint
    later = TRUE.assign(**{"birth date": TRUE["birth date"] + pd.Timedelta(days=30)})
    found = evaluate(TRUE, later, named, 1, compare="fare by child")
    assert [means.title for means in found.group_means.requested] == [
        "birth date by kind", "fare by child"]  # fmt: skip
    dates, fares = found.findings["group_means"].figures[:2]
    assert "Mean error 30.0 days" in dates.caption
    assert (len(dates.rows), len(fares.rows)) == (4, 2)
    assert len(found.as_json()["group_means"]["requested"]) == 6
    for text in ("kind by child", "fare by colour", "fare"):
        with pytest.raises(InputError, match="Cannot compare"):
            evaluate(TRUE, later, SCHEMA, 1, compare=text)
    for content in (TRUE, "kind\nsecret by child"):  # by mistake
        with pytest.raises(InputError) as refused:
            evaluate(TRUE, later, SCHEMA, 1, compare=content)
        assert "secret" not in str(refused.value)
