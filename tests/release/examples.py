"""Schemas and charges of every kind, for hypothesis, and bundles with other members."""

import json
import zipfile
from fractions import Fraction

from hypothesis import strategies as st

from adaptive_qs.privacy.events import GaussianEvent, PartitionEvent, Purpose, SelectionEvent
from adaptive_qs.table.schema import Schema

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6
).filter(lambda name: name == name.strip(" \t\r\n\x0b\x0c"))
MISSING = st.sampled_from([[], ["?"]])


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(["categorical", "integer", "numeric", "date", "boolean"]))
    column = {"name": name, "type": kind, "missing": draw(MISSING)}
    learns = draw(st.booleans())
    if kind == "categorical":
        values = ["a", "b", "c"][: draw(st.integers(1, 3))]
        column |= {"values": values}
        if learns or draw(st.booleans()):
            column["catch_all"] = draw(st.sampled_from(["a", "other"]))
        if learns:
            column["learnt"] = ["values"]
        return column
    choices = ["refuse", "missing"] if column["missing"] else ["refuse"]
    if kind != "boolean":
        choices.append("clip")
    column["outside"] = draw(st.sampled_from(choices))
    if kind == "integer":
        high = draw(st.integers(0, 9))
        column |= {"min": 0, "max": high, "bin_starts": [0, 1][: min(high, 1) + 1]}
    elif kind == "numeric":
        column |= {"edges": [0, 0.5, 1][: draw(st.integers(2, 3))]}
    elif kind == "date":
        last = draw(st.sampled_from(["2020-01-01", "2020-02-01"]))
        column |= {"min": "2020-01-01", "max": last}
    if learns and kind in ("integer", "numeric"):
        column["learnt"] = draw(
            st.sampled_from([["bins"], ["min", "bins"], ["min", "max", "bins"]])
        )
    return column


@st.composite
def schemas(draw):
    """Columns of every type, declared or learnt, with any name; now and then a drafted schema."""
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    ignored = draw(st.integers(0, len(names) - 1))
    return Schema.parse(
        {
            "version": 1,
            "open": draw(st.sampled_from([[], ["publish"]])),
            "columns": [draw(columns(name)) for name in names[ignored:]],
            "ignore": names[:ignored],
        }
    )


@st.composite
def charges(draw, schema):
    """The charges of a run on this schema: its learnt columns, and some of every other kind."""
    ratios = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=10**6)
    names = st.sampled_from(schema.names)
    some = st.lists(names, max_size=3).map(tuple)
    learning = st.tuples(st.sampled_from([Purpose.BINS, Purpose.VALUES]), st.tuples(names))
    measuring = st.one_of(
        st.just((Purpose.ROWS, ())),
        st.tuples(st.just(Purpose.RESIDUAL), some.filter(bool)),
        st.tuples(st.just(Purpose.STRATEGY), some),
    )
    free = st.one_of(
        st.builds(lambda about, *more: GaussianEvent(*about, *more), learning, ratios, ratios),
        st.builds(lambda about, *more: GaussianEvent(*about, *more), measuring, ratios, ratios),
        st.builds(SelectionEvent, st.just(Purpose.SELECTION), st.just(()), ratios),
        st.builds(
            lambda about, share: PartitionEvent(*about, Fraction(1), 40, share),
            learning,
            st.fractions(min_value=Fraction(1, 10**9), max_value=Fraction(1, 100)),
        ),
    )
    paid = [
        GaussianEvent(
            Purpose.VALUES if column.type == "categorical" else Purpose.BINS,
            (column.name,),
            1,
            draw(ratios),
        )
        for column in schema.columns
        if getattr(column, "learnt", None)
    ]
    return tuple(paid + draw(st.lists(free, min_size=1, max_size=12)))


def rewritten(saved, path, changes, arrays=zipfile.ZIP_STORED):
    """A copy of a bundle with some members replaced; None drops one."""
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = changes.get(name, old.read(name))
            if content is not None:
                kind = arrays if name.endswith("npy") else zipfile.ZIP_DEFLATED
                new.writestr(name, content, kind)
    return path


def edited(saved, path, member, edit):
    """A copy of a bundle with one member of JSON changed in place."""
    with zipfile.ZipFile(saved) as old:
        content = json.loads(old.read(member))
    edit(content)
    return rewritten(saved, path, {member: json.dumps(content)})
