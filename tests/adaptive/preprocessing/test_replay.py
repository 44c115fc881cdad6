"""What a neighbouring table can change: the inputs by their sensitivity, and nothing else."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.adaptive.preprocessing.resolve import resolve_private
from adaptive_qs.privacy.events import Cost, GaussianEvent

from .helpers import Recorder, Replay, schema_of

SCHEMA = schema_of(
    {"name": "age", "type": "integer", "private_bins": 8, "missing": ["?"]},
    {"name": "pay", "type": "numeric", "private_bins": 6, "min": 0, "decimals": 2,
     "missing": [""], "outside": "missing"},
    {"name": "score", "type": "numeric", "private_bins": 5, "min": -1, "max": 1},
    {"name": "city", "type": "categorical", "private_values": 3, "catch_all": "*",
     "missing": ["?"]},
    {"name": "flag", "type": "boolean"},
)  # fmt: skip
NAMES = list(SCHEMA.names)
COST = Cost.within(Fraction(1, 2), Fraction(1, 1000))
RNG = np.random.default_rng(7)
ROWS = [
    (str(20 + i % 50), f"{p:.2f}", f"{s:.6f}", ["Ulm", "Bonn", "Trier", "Kiel"][i % 7 % 4], "t")
    for i, (p, s) in enumerate(zip(RNG.lognormal(3, 1, 200), RNG.normal(0, 0.5, 200)))
]
EXTRA = {
    "a typical row": ROWS[0],
    "a new category": ("30", "5", "0", "Aachen", "f"),
    "extreme values": ("999999999999999999", "1e300", "-1e300", "Ulm", "f"),
    "extreme values below": ("-999999999999999999", "-1e300", "1e-300", "Ulm", "f"),
    "zeros": ("0", "0", "0", "0", "f"),
    "missing values": ("?", "", "0", "?", "f"),
    "blank and unlisted text": ("30", "5", "0", "", "f"),
}


def table(rows):
    return pd.DataFrame(rows, columns=NAMES, dtype=str)


def calls_on_both(rows, neighbour):
    """Both runs' calls and schemas, the second with the outputs of the first."""
    first = Recorder(COST)
    schema = resolve_private(table(rows), SCHEMA, first, COST)
    second = Replay(COST, first.calls)
    again = resolve_private(table(neighbour), SCHEMA, second, COST)
    assert first.ledger.events == second.ledger.events
    assert again == schema
    assert again.to_json() == schema.to_json()
    return first.calls, second.calls


def change(one, other):
    """Squared L2 distance of the inputs of two calls."""
    if isinstance(one.event, GaussianEvent):
        return int(((one.inputs - other.inputs) ** 2).sum())
    before, after = (dict(zip(c.values, c.inputs.tolist())) for c in (one, other))
    return sum((before.get(v, 0) - after.get(v, 0)) ** 2 for v in before.keys() | after.keys())


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]], ids=["many rows", "one row"])
@pytest.mark.parametrize("direction", [1, -1], ids=["added", "removed"])
def test_a_row_changes_inputs_by_their_sensitivity_and_nothing_else(extra, rows, direction):
    pair = [rows, [*rows, EXTRA[extra]]][::direction]
    first, second = calls_on_both(*pair)
    assert len(first) == len(second) == 2 + 3 + 1  # bounds, bins, values
    for one, other in zip(first, second):
        allowed = one.event.squared_sensitivity if isinstance(one.event, GaussianEvent) else 1
        assert change(one, other) <= allowed


def test_the_sensitivity_is_reached():
    first, second = calls_on_both(ROWS, [*ROWS, ROWS[0]])
    for one, other in zip(first, second):
        allowed = one.event.squared_sensitivity if isinstance(one.event, GaussianEvent) else 1
        assert change(one, other) == allowed


def test_a_missing_value_changes_nothing():
    first, second = calls_on_both(ROWS, [*ROWS, EXTRA["missing values"]])
    changes = {one.event.label: change(one, other) for one, other in zip(first, second)}
    assert changes["bins of age"] == changes["bins of pay"] == changes["values of city"] == 0
    assert changes["bins of score"] > 0
