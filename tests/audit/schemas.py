"""Any small schema: every type of column, with and without catch-alls, clipping and markers."""

import datetime as dt

from hypothesis import strategies as st

from adaptive_qs.table.schema import Schema

MARKERS = st.sampled_from([[], [""], ["?", "n/a"]])


@st.composite
def categorical(draw):
    values = draw(st.lists(st.text("abcxyz ,\"'é-", min_size=1, max_size=4).map(str.strip),
                           min_size=1, max_size=6, unique=True))  # fmt: skip
    values = [value for value in values if value] or ["v"]
    column = {"type": "categorical", "values": values, "ordered": True}
    if draw(st.booleans()):
        column["catch_all"] = draw(st.sampled_from([*values, "(other)"]))
    return column


@st.composite
def ranged(draw):
    """Integers, numbers or dates."""
    kind = draw(st.sampled_from(["integer", "numeric", "date"]))
    if kind == "date":
        first = draw(st.dates(dt.date(1990, 1, 1), dt.date(2030, 1, 1)))
        last = first + dt.timedelta(days=draw(st.integers(0, 2000)))
        column = {"min": str(first), "max": str(last), "granularity": "year"}
    else:
        low = draw(st.integers(-50, 50))
        column = {
            "min": low,
            "max": low + draw(st.integers(12, 60)),
            "bins": draw(st.integers(1, 12)),
        }
    return {"type": kind, **column, "outside": draw(st.sampled_from(["refuse", "clip", "missing"]))}


@st.composite
def heaped(draw):
    """Columns in bins whose frequent values are found, or counted where they are declared."""
    low = draw(st.integers(-50, 50))
    column = {"type": "integer", "min": low, "max": low + draw(st.integers(20, 90)), "bins": 4}
    ways = [{"private_heaps": 5}, {"heaps": [low + 7]}]
    outside = draw(st.sampled_from(["refuse", "clip", "missing"]))
    return {**column, **draw(st.sampled_from(ways)), "outside": outside, "missing": ["?"]}


@st.composite
def learnt(draw):
    """Columns whose bins or values are learnt from the rows."""
    kind = draw(st.sampled_from(["integer", "numeric", "categorical"]))
    if kind == "categorical":
        return {"type": kind, "private_values": draw(st.integers(1, 6)), "catch_all": "(other)"}
    ends = draw(st.sampled_from([{}, {"min": 0}, {"max": 9}, {"min": -5, "max": 30}]))
    return {"type": kind, "private_bins": draw(st.integers(2, 9)), **ends}


@st.composite
def columns(draw):
    column = draw(st.one_of(categorical(), ranged(), st.just({"type": "boolean", "ordered": True})))
    column = {**column, "missing": draw(MARKERS)}
    if column.get("outside") == "missing" and not column["missing"]:
        column["missing"] = ["?"]
    return column


@st.composite
def schemas(draw, kinds=None):
    """A schema of two to four columns with at most 15 codes each."""
    found = draw(st.lists(columns() if kinds is None else kinds, min_size=2, max_size=4))
    named = [{"name": f"c{i}", **column} for i, column in enumerate(found)]
    return Schema.parse({"version": 1, "columns": named})


@st.composite
def workloads(draw, schema):
    """A workload file's content for a schema, and the mechanism that answers it."""
    if schema.private_columns:  # not all families fit before the codes are known
        return {"version": 1, "parts": [{"ways": [2], "queries": "marginal"}]}, "auto"
    most = min(3, len(schema.columns))
    ways = draw(st.integers(1, most))
    families = ["marginal", "prefix", "range", "hybrid", "random"]
    family = draw(st.sampled_from([*families, "affine", "absdiff"] if ways == 2 else families))
    mechanism = draw(st.sampled_from(["auto", "residualplanner", "identity"]))
    parts = [{"ways": [ways], "queries": family}]
    if ways == most > 1 and draw(st.booleans()):  # lighter ones wait for what is inside of them
        parts = [{"ways": [ways], "weight": 0.1}, {"ways": [ways - 1], "weight": 1.0}]
    return {"version": 1, "parts": parts}, mechanism
