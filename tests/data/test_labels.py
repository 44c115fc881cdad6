"""The label of a code says which values have that code."""

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.data.encode import encode_table
from adaptive_qs.data.labels import MISSING, column_labels
from adaptive_qs.data.schema import Schema
from adaptive_qs.labels import BinLabel
from adaptive_qs.workload.axis_queries import Circular, Prefix, Range


def schema_of(**column):
    return Schema.parse({"version": 1, "columns": [{"name": "x", **column}]})


def labels_of(**column):
    labels = column_labels(*schema_of(**column).columns)
    return labels


def codes_of(schema, values):
    (codes,) = encode_table(pd.DataFrame({"x": np.array(values, dtype=object)}), schema).columns
    return codes.tolist()


VALUES = {
    "text": {"type": "categorical", "values": ["b", "a", "a..b"]},
    "catch-all": {"type": "categorical", "values": ["b", "a"], "catch_all": "other"},
    "listed catch-all": {"type": "categorical", "values": ["b", "other", "a"], "catch_all": "b"},
    "numbers": {"type": "categorical", "values": [7, -3, 10]},
    "listed booleans": {"type": "categorical", "values": [True, False]},
    "integers": {"type": "integer", "min": -2, "max": 9},
    "boolean": {"type": "boolean"},
    "days": {"type": "date", "min": "2023-12-30", "max": "2024-03-01"},
    "minutes": {
        "type": "datetime", "granularity": "minute",
        "min": "2024-01-01T23:58:00", "max": "2024-01-02T00:03:00",
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_the_label_of_a_value_is_the_value(kind):
    schema = schema_of(**VALUES[kind])
    labels = column_labels(*schema.columns)
    assert not any(isinstance(label, BinLabel) for label in labels)
    assert codes_of(schema, labels) == list(range(len(labels)))


BINS = {
    "integers": {"type": "integer", "min": -7, "max": 12, "bins": 6},
    "starts": {"type": "integer", "min": 0, "max": 999, "bin_starts": [0, 1, 10, 500]},
    "numbers": {"type": "numeric", "min": -1, "max": 2, "bins": 7},
    "edges": {"type": "numeric", "edges": [0, 0.1, 12.5, 1e22]},
    "weeks": {"type": "date", "granularity": "week", "min": "2024-01-01", "max": "2024-02-04"},
}


@pytest.mark.parametrize("kind", BINS)
def test_the_ends_of_a_bin_have_its_code(kind):
    schema = schema_of(**BINS[kind])
    labels = column_labels(*schema.columns)
    assert len(set(labels)) == len(labels)
    for code, label in enumerate(labels):
        if not isinstance(label, BinLabel):
            assert codes_of(schema, [label]) == [code]
        elif label.open:
            assert codes_of(schema, [label.first, label.last]) == [code, code + 1]
            assert label == f"[{label.first}, {label.last})"
        else:
            assert codes_of(schema, [label.first, label.last]) == [code, code]
            assert label in (f"{label.first}..{label.last}", f"[{label.first}, {label.last}]")


@pytest.mark.parametrize("granularity", ["month", "quarter", "year", "hour"])
def test_periods_have_their_names(granularity):
    """pandas knows calendars on its own."""
    first, last = pd.Timestamp("1968-11-30T05:30"), pd.Timestamp("1970-02-03T01:00")
    labels = labels_of(
        type="datetime", granularity=granularity, min=first.isoformat(), max=last.isoformat()
    )
    frequency = {"month": "M", "quarter": "Q", "year": "Y", "hour": "h"}[granularity]
    periods = pd.period_range(first, last, freq=frequency)
    written = {"month": "%Y-%m", "quarter": "%Y-Q%q", "year": "%Y", "hour": "%Y-%m-%dT%Hh"}
    assert list(labels) == [period.strftime(written[granularity]) for period in periods]


def test_unknown_and_missing_values_come_last():
    assert labels_of(type="categorical", values=["a"], catch_all="else", missing=["?"]) == (
        "a", "else", MISSING,
    )  # fmt: skip
    assert labels_of(type="boolean", missing=[""]) == ("false", "true", "(missing)")
    assert labels_of(type="categorical", values=[MISSING], missing=[""]) == (
        MISSING, f"({MISSING})",
    )  # fmt: skip


AGES = {"type": "integer", "min": 20, "max": 39, "bins": 2, "missing": ["?"]}
THIRDS = {"type": "numeric", "edges": [0, 1, 2, 3]}
WEIGHTS = {"type": "numeric", "edges": [0, 1.5, 3]}


@pytest.mark.parametrize(
    ("column", "queries", "expected"),
    [
        (AGES, Prefix(3), ["x <= 29", "x <= 39", "x <= (missing)"]),
        (AGES, Range(3), [
            "x in [20, 29]", "x in [20, 39]", "x in [20, (missing)]",
            "x in [30, 39]", "x in [30, (missing)]", "x in [(missing), (missing)]",
        ]),
        (WEIGHTS, Prefix(2), ["x < 1.5", "x <= 3"]),
        (WEIGHTS, Range(2), ["x in [0, 1.5)", "x in [0, 3]", "x in [1.5, 3]"]),
        (WEIGHTS, Circular(2), [
            "x in [0, 1.5)", "x anywhere", "x in [1.5, 3]", "x anywhere",
        ]),
        (THIRDS, Circular(3), [
            "x in [0, 1)", "x in [0, 2)", "x anywhere", "x in [1, 2)", "x in [1, 3]", "x anywhere",
            "x in [2, 3]", "x from 2 to below 1, around the end", "x anywhere",
        ]),
    ],
)  # fmt: skip
def test_comparisons_of_bins_speak_of_their_ends(column, queries, expected):
    assert list(queries.labels(("x",), (labels_of(**column),))) == expected
