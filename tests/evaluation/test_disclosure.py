"""The disclosure sheet against pandas, and against all halves and all rows left out one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.evaluation import evaluate

from .test_accept import MADE, SCHEMA, TRUE, found

KNOWN = ["sex", "month", "weight"]


def disclosed(made=MADE, true=TRUE, known=KNOWN):
    """The facts and the finding of the sheet."""
    evaluation = evaluate(true, made, SCHEMA, 1, disclose=", ".join(known))
    return evaluation.disclosure, evaluation.findings["disclosure"].said


def coded(table, known):
    """The combinations of some columns, weights by their bins of 100 g."""
    return list(table.assign(weight=table.weight // 100)[known].itertuples(index=False, name=None))


def test_counts_are_those_of_pandas():
    facts, said = disclosed()
    both = [pd.Series(coded(t, KNOWN)) for t in (TRUE, MADE)]
    sizes = [rows.map(rows.value_counts()) for rows in both]
    assert facts.combinations == tuple(rows.nunique() for rows in both)
    assert [k for k, *_ in facts.small] == [2, 3, 5, 10]
    assert all(each[1 + t] == (sizes[t] < each[0]).sum() for each in facts.small for t in (0, 1))
    once = [set(rows[size == 1]) for rows, size in zip(both, sizes)]
    assert facts.unique.whole == len(once[0] & once[1]) / len(once[1])
    true, made = map(set, both)
    assert facts.true_found.whole == len(true & made) / len(true)
    assert facts.synthetic_found.whole == len(true & made) / len(made)
    criterion = {"measure": "unique_matches", "columns": KNOWN}
    assert found(MADE, criterion)[0].value == both[1].isin(once[0]).mean()
    assert said.startswith(f"{(sizes[0] == 1).mean():.2%}".replace("%", "\u00a0%"))


@pytest.mark.parametrize("rows", [4, 9])  # synthetic rows: fewer than half of the true ones, more
def test_halves_are_the_mean_over_all_halves(rows):
    months = [1, 1, 1, 1, 1, 1, 2, 3, 3], [1, 2, 3, 4, 4, 1, 5, 1, 6]
    true, made = (TRUE[: len(m)].assign(month=m) for m in (months[0], months[1][:rows]))
    facts, _ = disclosed(made, true, ["month"])
    true, made = coded(true, ["month"]), coded(made, ["month"])
    sums = np.zeros((2, 6))
    for first in combinations(range(9), 4):
        a = [true[k] for k in first]
        rest = [true[k] for k in range(9) if k not in first]
        for control, source in enumerate((made, rest)):
            for b in combinations(source, min(5, rows)):
                ones = [{c for c in rows if rows.count(c) == 1} for rows in (a, b)]
                every = [set(a), set(b)]
                parts = len(ones[0] & ones[1]), len(ones[1]), *[len(every[0] & every[1])] * 2
                sums[control] += [*parts, len(every[0]), len(every[1])]
    unique, ones, both, _, of_true, of_made = sums.T
    for k, each in enumerate(("half", "control")):
        assert getattr(facts.unique, each) == pytest.approx(unique[k] / ones[k])
        assert getattr(facts.true_found, each) == pytest.approx(both[k] / of_true[k])
        assert getattr(facts.synthetic_found, each) == pytest.approx(both[k] / of_made[k])


def test_guesses_are_those_of_rows_left_out_one_by_one():
    true, made, known = TRUE[:150], MADE[:120], ["sex", "month"]
    facts, _ = disclosed(made, true, known)
    assert {guess.column for guess in facts.guesses} == set(TRUE) - set(known)

    def guess(keys, values, key):
        """The most frequent value, the least of several, of the rows with this key or of all."""
        alike = values[keys == key]
        return (alike if len(alike) else values).mode().min()

    tables = [t.assign(weight=t.weight // 100).reset_index(drop=True) for t in (true, made)]
    keys = [pd.Series(map(str, coded(t, known))) for t in (true, made)]
    for each in facts.guesses:
        values, others = (table[each.column] for table in tables)
        right = [guess(keys[1], others, key) == v for key, v in zip(keys[0], values)]
        left_out = [
            guess(keys[0].drop(k), values.drop(k), keys[0][k]) == values[k] for k in range(150)
        ]
        assert (each.synthetic, each.control) == (np.mean(right), np.mean(left_out))
        assert each.most_frequent == values.value_counts(normalize=True).max()
        apart = pd.Series(np.subtract(right, left_out, dtype=float))
        deviation = np.sqrt((apart.groupby(keys[0]).sum() ** 2).sum()) / 150
        assert (each.excess, each.deviation) == pytest.approx((apart.mean(), deviation))


def test_only_a_table_of_copies_lets_values_be_guessed():
    facts, said = disclosed()
    assert "No other column is guessed better" in said
    assert facts.unique.half == pytest.approx(facts.unique.control, abs=0.2)  # 140 unique rows
    copied, said = disclosed(pd.concat([TRUE[:2_000], MADE[:2_000]]))
    assert "Some columns are guessed better" in said
    assert "“mother_age”" in said
    assert copied.unique.whole > 2 * facts.unique.whole
    assert copied.unique.half > 1.2 * copied.unique.control


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ("distance", "Distances to the closest record are not reported: "),
        ("sex, day", "names 'day', which is no column"),
        (["sex"], "Use a text"),
    ],
)
def test_others_are_refused_in_one_line(known, message):
    with pytest.raises(InputError, match=message) as refused:
        evaluate(TRUE, MADE, SCHEMA, 1, disclose=known)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="Distances to the closest record"):
        found(MADE, {"measure": "dcr"})
