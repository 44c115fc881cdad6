"""Private tables for fuzzing: one column of every type, valid cells, nasty cells, damaged bytes."""

from __future__ import annotations

import gzip

from hypothesis import strategies as st

from adaptive_qs.table.schema import Schema

CANARY = "CANARY-7f3a"
CANARY_NUMBER = "83047561"

COLUMNS = {
    "cat": {"type": "categorical", "values": ["a", "b"]},
    "code": {"type": "categorical", "values": [1, 2], "missing": [""]},
    "flag": {"type": "boolean"},
    "int": {"type": "integer", "min": 0, "max": 9},
    "num": {"type": "numeric", "edges": [0, 1, 2], "outside": "clip"},
    "day": {"type": "date", "min": "2020-01-01", "max": "2020-01-31"},
    "time": {"type": "datetime", "min": "2020-01-01T00:00:00", "max": "2020-01-02T00:00:00"},
    "fmt": {
        "type": "date", "min": "2020-01-01", "max": "2020-12-31", "format": "%d/%m/%Y",
        "granularity": "month",
    },
}  # fmt: skip
GOOD = {
    "cat": ["a", "b"], "code": ["1", "2.0", ""], "flag": ["true", "No"], "int": ["3", "+9", " 0 "],
    "num": ["0.5", "7"], "day": ["2020-01-03"], "time": ["2020-01-01T04:05:06Z"],
    "fmt": ["03/02/2020"],
}  # fmt: skip
"""Cells that the schema takes."""

DOCUMENT = {"version": 1, "columns": [{"name": name, **of} for name, of in COLUMNS.items()]}
SCHEMA = Schema.parse(DOCUMENT)
HEADER = ",".join(COLUMNS)
ROW = ",".join(cells[0] for cells in GOOD.values())

NASTY = [
    CANARY, CANARY_NUMBER, f'"{CANARY}', f'{CANARY}"x', f'"{CANARY},""x"""', f"{CANARY}\n", "",
    "nan", "inf", "-1", "1e400", "-1e-400", "9" * 40, "1.5", "0x10", "1_0", "1" * 400,
    "2020-02-31", "9999-12-31", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "%d",
    "=1", "29/02/2021", "\x00", "\ufeff", "\u00e9", "\u0661", "\u2028", "\x1c", "'", ",", ";", '""',
    '"', "\\", " ", "x" * 5000,
]  # fmt: skip
"""Cells, or parts of them, that have broken readers of tables."""

_junk = st.sampled_from(
    [b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\n" * 50, b'"', b",", b";",
     b"\t", b"\xe9", b"\xed\xa0\x80", b"PAR1", b"\x1f\x8b", b"1", CANARY.encode()]
)  # fmt: skip


@st.composite
def edited(draw: st.DrawFn, content: bytes, most: int = 4) -> bytes:
    """The content after up to ``most`` flips, insertions, deletions, repetitions or truncations."""
    data = bytearray(content)
    for _ in range(draw(st.integers(0, most))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        end = place + draw(st.integers(1, 40))
        match draw(st.sampled_from(["flip", "insert", "delete", "repeat", "cut"])):
            case "flip" if data:
                data[place] ^= draw(st.integers(1, 255))
            case "insert":
                data[place:place] = draw(_junk | st.binary(min_size=1, max_size=4))
            case "delete":
                del data[place:end]
            case "repeat":
                data[place:place] = data[place:end]
            case "cut":
                del data[place:]
    return bytes(data)


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[bytes, int | None]:
    """A CSV file, plain or gzipped, and its number of rows where it is valid (else None)."""
    rows = draw(st.lists(st.tuples(*map(st.sampled_from, GOOD.values())), min_size=1, max_size=5))
    lines = [list(COLUMNS), *map(list, rows)]
    count: int | None = len(rows)
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        line = draw(st.sampled_from(lines))
        cell = draw(st.sampled_from(NASTY) | st.text(max_size=6))
        line[draw(st.integers(0, len(line) - 1))] = cell
        count = None
    end = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
    content = end.join(map(",".join, lines)) + draw(st.sampled_from(["", end]))
    encoding = draw(
        st.sampled_from(["utf-8"] * 6 + ["utf-8-sig", "latin-1", "utf-16", "utf-32-le"])
    )
    data = content.encode(encoding, "replace")
    count = count if encoding.startswith("utf-8") else None
    if draw(st.booleans()):
        damaged = draw(edited(data))
        count, data = (count if damaged == data else None), damaged
    if draw(st.integers(0, 3)) == 0:
        packed = gzip.compress(data, mtime=0)
        data = draw(edited(packed, most=1))
        count = count if data == packed else None
    return data, count
