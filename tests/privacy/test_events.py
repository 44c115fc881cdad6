"""Events say what they paid for, and come back from their records as they were."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adaptive_qs.privacy.events import (
    GaussianEvent,
    PartitionEvent,
    Purpose,
    SelectionEvent,
    Transcript,
)

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
RATIOS = st.fractions(min_value=Fraction(1, 10**9), max_value=10**9)
ONE = st.tuples(NAMES)
MEASURED = st.one_of(
    st.tuples(st.just(Purpose.ROWS), st.just(())),
    st.tuples(st.sampled_from([Purpose.BINS, Purpose.VALUES]), ONE),
    st.tuples(st.just(Purpose.RESIDUAL), st.lists(NAMES, min_size=1, max_size=3).map(tuple)),
    st.tuples(
        st.sampled_from([Purpose.STRATEGY, Purpose.STRATEGY]),
        st.lists(NAMES, max_size=3).map(tuple),
    ),
)
EVENTS = st.one_of(
    st.builds(lambda about, *more: GaussianEvent(*about, *more), MEASURED, RATIOS, RATIOS),
    st.builds(
        SelectionEvent, st.just(Purpose.SELECTION), st.just(()), RATIOS | st.floats(1e-9, 1e9)
    ),
    st.builds(
        PartitionEvent, st.just(Purpose.VALUES), ONE, st.just(1), st.just(40),
        st.fractions(min_value=Fraction(1, 10**9), max_value=Fraction(1, 2)),
    ),
)  # fmt: skip


@given(events=st.lists(EVENTS, max_size=5))
def test_events_come_back_from_their_json_whatever_the_names(events):
    text = Transcript(events=events).model_dump_json()
    again = Transcript.model_validate_json(text)
    assert again.events == tuple(events)
    assert again.model_dump_json() == text


def test_purpose_and_columns_are_keys_of_a_record():
    event = GaussianEvent(Purpose.RESIDUAL, ("a x b", "c"), 3, Fraction(7, 2))
    assert Transcript(events=[event]).model_dump(mode="json") == {
        "events": [
            {
                "mechanism": "discrete gaussian",
                "purpose": "residual",
                "columns": ["a x b", "c"],
                "squared_sensitivity": "3/1",
                "noise_variance": "7/2",
            }
        ]
    }


@pytest.mark.parametrize(
    "change",
    [
        {"purpose": "quantile"},
        {"purpose": None},
        {"columns": "age"},
        {"columns": [3]},
        {"columns": None},
        {"label": "residual age"},
        {"noise_variance": 2},
        {"noise_variance": "2"},
        {"noise_variance": "-1/2"},
    ],
)
def test_records_that_say_something_unknown_are_refused(change):
    (record,) = Transcript(events=[GaussianEvent(Purpose.RESIDUAL, ("age",), 1, 2)]).model_dump(
        mode="json"
    )["events"]
    Transcript.model_validate({"events": [record]})
    with pytest.raises(ValidationError):
        Transcript.model_validate({"events": [record | change]})


@pytest.mark.parametrize(
    ("purpose", "columns", "label"),
    [
        (Purpose.ROWS, (), "total"),
        (Purpose.RESIDUAL, ("a", "b"), "residual a x b"),
        (Purpose.STRATEGY, (), "strategy total"),
        (Purpose.BINS, ("a",), "bins of a"),
        (Purpose.VALUES, ("a",), "values of a"),
    ],
)
def test_labels_are_words_for_messages(purpose, columns, label):
    assert GaussianEvent(purpose, columns, 1, 1).label == label


def test_a_selection_is_about_no_column():
    assert SelectionEvent(Purpose.SELECTION, (), 1.0).label == "select"
