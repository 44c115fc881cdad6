"""Labels say what a charge paid for, and are read back as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.privacy.events import (
    SELECTION,
    Purpose,
    column_label,
    measurement_label,
    read_label,
)

NAMES = st.text(min_size=1, max_size=8)
MEASURED = (Purpose.RESIDUAL, Purpose.STRATEGY, Purpose.QUERIES)


@given(purpose=st.sampled_from([Purpose.BINS, Purpose.VALUES]), name=NAMES)
def test_what_is_learnt_names_its_column_whatever_the_name(purpose, name):
    assert read_label(column_label(purpose, name)) == (purpose, name)


@given(purpose=st.sampled_from(MEASURED), names=st.lists(NAMES, min_size=1, max_size=3))
def test_measurements_keep_their_purpose(purpose, names):
    assert read_label(measurement_label(purpose, names)) == (purpose, " x ".join(names))


@pytest.mark.parametrize(
    ("label", "reading"),
    [
        (SELECTION, (Purpose.SELECTION, "")),
        (measurement_label(Purpose.RESIDUAL, ()), (Purpose.ROWS, "")),
        (measurement_label(Purpose.STRATEGY, ()), (Purpose.STRATEGY, "total")),
        ("median of age", (Purpose.OTHER, "median of age")),
        ("residuals", (Purpose.OTHER, "residuals")),
    ],
)
def test_other_labels(label, reading):
    assert read_label(label) == reading
