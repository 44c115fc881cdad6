"""Shapes keep inside their picture, pages are whole and escaped."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from adaptive_qs.pages.words import HEIGHT, Bar, BarChart, _environment, render

SHARES = st.floats(0, 1)


@given(st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=50))
def test_histograms_stay_inside_and_tell_the_heights(pairs):
    chart = BarChart(tuple(Bar(str(k), pair) for k, pair in enumerate(pairs)), True)
    for series, path in ((0, chart.area()), (1, chart.steps())):
        heights = [float(y) for y in re.findall(r"(?:V|M0 )([\d.]+)(?=H)", path)]
        drawn = [chart.top * (1 - y / HEIGHT) for y in heights]
        wanted = [pair[series] for pair in pairs]
        assert drawn == pytest.approx(wanted, abs=chart.top * 0.001)
        assert max(float(x) for x in re.findall(r"H(\d+)", path)) == len(pairs)


def test_intervals_below_zero_are_cut_at_zero():
    chart = BarChart((Bar("a", (5.0,), -5.0, 15.0), Bar("b", (30.0,), 20.0, 40.0)), True)
    assert chart.top == 40
    assert chart.whiskers() == "M0.5 100V62.5M1.5 50V0"
    assert (chart.width(-5), chart.width(20), chart.width(99)) == ("0.0", "50.0", "100.0")


def test_a_histogram_has_the_height_of_its_own_bars():
    """85 % missing values do not flatten it; they have an axis of their own, up to all rows."""
    bars = (Bar("1 to 2", (0.10, 0.12)), Bar("3 to 4", (0.05, 0.07)))
    chart = BarChart(bars, True, apart=(Bar("(missing)", (0.85, 0.81)),))
    assert chart.top == 0.12
    assert chart.steps().startswith("M0 0H1")
    missing = chart.outside
    assert [bar.label for bar in missing.bars] == ["(missing)"]
    assert [missing.width(value) for value in missing.bars[0].values] == ["85.0", "81.0"]


@pytest.mark.parametrize("page", ["report", "release"])
def test_missing_values_are_drawn_beside_the_scale(page):
    chart = BarChart((Bar("1", (30.0, 30.0), 20.0, 40.0),), True,
                     apart=(Bar("(missing)", (70.0, 70.0), 60.0, 80.0),))  # fmt: skip
    source = "{% import 'charts.html' as c %}{{ c.bar_chart(chart, h, 'rows', 'l', as_count, i) }}"
    drawn = _environment(()).from_string(source)
    interval = page == "release"
    text = drawn.render(chart=chart, h=["rows"] if interval else ["true", "synthetic"], i=interval)
    beside = text[text.index("</svg>") : text.index("<details>")]
    assert "(missing)" in beside
    assert beside.count("width:70.0%") == (1 if interval else 2)


def test_ticks_are_the_ends_and_the_middle():
    bars = tuple(Bar(f"{k} to {k + 1}", (1.0,), ends=(f"{k}", f"{k + 1}")) for k in range(5))
    assert BarChart(bars, True).ticks == ("0", "2", "5")


def test_an_undefined_name_is_an_error():
    with pytest.raises(UndefinedError):
        render("release.html", ("adaptive_qs.release.release",))


def test_base_page_is_closed_to_the_network_and_marked_up():
    page = render("base.html", ())
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
    assert '<html lang="en">' in page
    assert "<script" not in page
    assert not re.search(r"https?://|url\(|@import", page)
