"""Numbers and names as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.pages.words import (
    LONGEST,
    UNKNOWN,
    combination,
    count,
    counted,
    decimals,
    grouped,
    joints,
    listed,
    plain,
    share,
    short,
    signed,
    significant,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.06614, "0.0661"), (1234.5, "1,234"), (-0.5, "−0.500"), (2.0, "2.00"),
        (1e-7, "1.00e−7".replace("−7", "−07")), (math.nan, UNKNOWN), (None, UNKNOWN),
        (math.inf, UNKNOWN),
    ],
)  # fmt: skip
def test_significant(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00667, "0.007"), (-0.065, "−0.065"), (4.6e-5, "under 0.001"), (-1e-5, "0.000"),
     (0, "0.000"), (1, "1.000"), (None, UNKNOWN), (math.nan, UNKNOWN)],
)  # fmt: skip
def test_decimals(value, text):
    assert decimals(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("65000", "65,000"), ("-1234567.5", "-1,234,567.5"), ("999", "999"), ("2024-01", "2024-01"),
     ("1e5", "1e5"), ("00123", "00123")],
)  # fmt: skip
def test_thousands_are_apart(text, shown):
    assert grouped(text) == shown


@given(st.text())
def test_lines_break_only_after_joints_of_names(text):
    parts = joints(text)
    assert "".join(parts) == text
    assert all(part[-1] in "_/." for part in parts[:-1])
    assert joints("paid_late.fees at 0.5 of </b>") == ["paid_", "late.", "fees at 0.5 of </b>"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 %"), (1, "100 %"), (0.1234, "12.3 %"), (0.0045, "0.450 %"), (0.9999, "99.99 %"),
        (1e-6, "under 0.001 %"), (math.nan, UNKNOWN), (-0.02, "−2.00 %"),
    ],
)  # fmt: skip
def test_share(value, text):
    assert share(value).replace("\u00a0", " ") == text


def test_parts_of_more_than_the_whole_have_their_digits_too():
    assert [share(x, 2).replace("\u00a0", " ") for x in (1.0284, 1.28, 12.345, 0.9999)] == [
        "103 %", "128 %", "1,234 %", "99.99 %",
    ]  # fmt: skip


@given(st.floats(-1e12, 1e12))
def test_a_number_is_read_back_within_its_digits(value):
    shown = float(significant(value).replace(",", "").replace("−", "-"))
    assert shown == pytest.approx(value, rel=0.0051)


def test_the_others():
    assert (signed(0.123), signed(-0.123), signed(-0.0001)) == ("+0.12", "−0.12", "0.00")
    assert (count(48842.4), count(-3.2), count(None)) == ("48,842", "−3", UNKNOWN)
    assert (counted(1, "class", "classes"), counted(2, "class", "classes")) == (
        "1 class", "2 classes",
    )  # fmt: skip
    assert (plain(1.0), plain(1e-9), plain(None)) == ("1", "1e-09", UNKNOWN)


@given(st.text())
def test_a_shown_name_is_one_short_printable_line(name):
    shown = short(name)
    assert shown.isprintable()
    assert len(shown) <= LONGEST
    if name.isprintable() and len(name) <= LONGEST:
        assert shown == name


def test_names_together():
    assert short("a\u202eb\n") == "a\\u202eb\\n"
    assert combination(("a", "b")) == "a × b"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"], 3) == "a, b and c"
    assert listed(list("abcdef"), 2) == "a, b and 4 more"
