"""Typed tables: right and wrong types for every column of the schema, with extreme values."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
from hypothesis import strategies as st

from .tables import CANARY, CANARY_NUMBER, COLUMNS, GOOD, NASTY

_NUMBER = int(CANARY_NUMBER)
_EXTREME: list[tuple[pa.DataType, list[object]]] = [
    (pa.int64(), [1, -1, 2**63 - 1, -(2**63), _NUMBER]),
    (pa.uint64(), [1, 2**64 - 1, _NUMBER]),
    (pa.int8(), [1, -128, 0]),
    (pa.float64(), [1.0, float("nan"), float("inf"), 1.7e308, -1.7e308, 5e-324, float(_NUMBER)]),
    (pa.float32(), [0.5, float("nan"), float("-inf")]),
    (pa.bool_(), [True, False]),
    (pa.string(), NASTY),
    (pa.large_string(), ["a", CANARY]),
    (pa.binary(), [CANARY.encode(), b"\xff"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(2020, 1, 3), dt.date(9999, 12, 31)]),
    (pa.timestamp("s"), [0, 2**50, -(2**50)]),
    (pa.timestamp("us", "UTC"), [0, 2**63 - 1, -(2**63) + 1]),
    (pa.timestamp("ns"), [0, 2**63 - 1, -(2**63) + 1]),
    (pa.decimal128(38, 2), [decimal.Decimal(1), decimal.Decimal("1e30"), decimal.Decimal(_NUMBER)]),
    (pa.duration("s"), [_NUMBER]),
    (pa.time32("s"), [5]),
    (pa.list_(pa.string()), [[CANARY], []]),
    (pa.struct([("x", pa.string())]), [{"x": CANARY}]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", CANARY]),
    (pa.null(), [None]),
]


@st.composite
def frames(draw: st.DrawFn) -> pa.Table:
    """A pyarrow table with the columns of the schema, of which a few have another type."""
    rows = draw(st.integers(1, 5))
    others = draw(st.sets(st.sampled_from(sorted(COLUMNS)), max_size=2))
    columns = {}
    for name, good in GOOD.items():
        kind, cells = pa.string(), list(good)
        if name in others:
            kind, cells = draw(st.sampled_from(_EXTREME))
            cells = [*cells, None]
        drawn = draw(st.lists(st.sampled_from(cells), min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, kind)
    return pa.table(columns)
