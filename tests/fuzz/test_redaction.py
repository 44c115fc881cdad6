"""A cell, a count or a line number never shows: canaries through every way of failing.

The same fault in a short and in a long table, early and late, gives the same message: nothing in it
depends on how many rows there are or which of them is at fault. `schema init` alone, which
shows its owner the rows anyway, says where the fault is; it shows no cell of it.
"""

import gzip
import logging
import warnings
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adaptive_qs.answering import api
from adaptive_qs.errors import DataError
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.propose import propose

from .conftest import VERBS
from .tables import CANARY, CANARY_NUMBER, COLUMNS, GOOD, HEADER, ROW, SCHEMA

CANARIES = (CANARY, CANARY_NUMBER)
CELLS = [CANARY, CANARY_NUMBER, f'"{CANARY}, ""{CANARY}"""', f"{CANARY}\n2"]
LINES = {
    "ragged": f"{CANARY},{CANARY_NUMBER}".encode(),
    "quotes": f'"{CANARY},{CANARY_NUMBER}'.encode(),
    "encoding": CANARY.encode() + b"\xff" + CANARY_NUMBER.encode(),
    "NUL": CANARY.encode() + b"\0" + CANARY_NUMBER.encode(),
    "enormous": CANARY.encode() * 400_000,
}
READERS = sorted(VERBS.keys() - {"synthetic"})
"""`evaluate` reads both of its tables alike."""
SIZES = [(2, 9), (403, 437)]
"""Rows before the fault, and in all."""


def table(line, place, rows):
    good = f"{ROW}\n".encode()
    return f"{HEADER}\n".encode() + good * place + line + b"\n" + good * (rows - place)


def hidden(text):
    assert not any(canary in text for canary in CANARIES), text


def message(run, verb, path, capture):
    """What a command says, after looking for canaries in all that it leaves behind."""
    before = sorted(Path.cwd().iterdir())
    outcome = run(verb, path)
    assert outcome.code == 2, outcome
    hidden(outcome.out + outcome.err)
    hidden(capture.text)
    assert sorted(Path.cwd().iterdir()) == before
    return outcome.err


def causes(action):
    """The error of the Python interface and all that it leads to, without a canary."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(DataError) as raised:
            action()
    for warning in caught:
        hidden(str(warning.message))
    error = raised.value
    hidden(f"{error!r} {error.args} {vars(error)} {getattr(error, '__notes__', '')}")
    assert error.__cause__ is None
    assert error.__context__ is None


def everywhere(run, capture, make):
    """The same message for both sizes, from every command and from Python."""
    capture.set_level(logging.DEBUG)
    Path("good.csv").write_text(f"{HEADER}\n{ROW}\n")
    said = []
    for place, rows in SIZES:
        path = make(place, rows)
        said.append([message(run, verb, path, capture) for verb in READERS])
        causes(lambda path=path: Synthesizer(epsilon=1.0, workload=1).fit(path, schema=SCHEMA))
        causes(lambda path=path: api.answer(path, SCHEMA, 1, epsilon=1.0))
    assert said[0] == said[1]


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"num"}))
@pytest.mark.parametrize("cell", CELLS, ids="abcd")
@pytest.mark.one_in(3)
def test_cells(name, cell, run, caplog):
    bad = ",".join({**{n: good[0] for n, good in GOOD.items()}, name: cell}.values()).encode()

    def make(place, rows):
        Path("t.csv").write_bytes(table(bad, place, rows))
        return "t.csv"

    everywhere(run, caplog, make)


@pytest.mark.parametrize("case", LINES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_lines(case, packed, run, caplog):
    def make(place, rows):
        content = table(LINES[case], place, rows)
        Path("t.csv").write_bytes(gzip.compress(content) if packed else content)
        return "t.csv"

    everywhere(run, caplog, make)
    with pytest.raises(DataError) as caught:
        propose("t.csv")
    hidden(repr(caught.value))


NESTED = pa.list_(pa.struct([("x", pa.string())]))
TYPED = {
    "text": (pa.string(), CANARY),
    "number": (pa.int64(), int(CANARY_NUMBER)),
    "real": (pa.float64(), float(CANARY_NUMBER)),
    "bytes": (pa.binary(), CANARY.encode()),
    "nested": (NESTED, [{"x": CANARY}]),
    "time": (pa.timestamp("s"), 10**11 + int(CANARY_NUMBER)),
}


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"num"}))
@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.one_in(5)
def test_parquet(name, kind, run, caplog):
    type_, cell = TYPED[kind]

    def make(place, rows):
        columns = {n: [good[0]] * rows for n, good in GOOD.items()}
        columns[name] = pa.array([cell if k == place else None for k in range(rows)], type_)
        pq.write_table(pa.table(columns), "t.parquet")
        return "t.parquet"

    everywhere(run, caplog, make)


def test_what_is_written_holds_no_metadata_of_the_private_file(run):
    fields = [pa.field(n, pa.string(), metadata={"note": CANARY}) for n in COLUMNS]
    schema = pa.schema(fields, metadata={"pandas": "{}", CANARY: CANARY_NUMBER})
    rows = [[good[0]] * 1237 for good in GOOD.values()]
    pq.write_table(pa.table(rows, schema=schema), "t.parquet")
    Path("good.csv").write_text(f"{HEADER}\n{ROW}\n")
    said = ""
    for verb in VERBS:
        outcome = run(verb, "t.parquet", *(["--force"] if verb == "answer" else []))
        assert outcome.code == 0, outcome
        said += outcome.out + outcome.err
    hidden(said)
    for path in set(Path.cwd().rglob("*")) - {Path.cwd() / "t.parquet"}:
        contents = [path.read_bytes()]
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                contents = [archive.read(name) for name in archive.namelist()]
        if path.suffix == ".parquet":
            contents.append(str(pq.read_table(path).schema.metadata).encode())
        for content in contents:
            assert not any(canary.encode() in content for canary in CANARIES)


def test_a_private_file_given_as_a_schema_is_not_quoted(run, caplog):
    from adaptive_qs.errors import SchemaError
    from adaptive_qs.table.schema import Schema

    Path("t.csv").write_bytes(table(CANARY.encode(), 2, 9))
    with pytest.raises(SchemaError) as caught:
        Schema.load("t.csv")
    assert caught.value.__context__ is None
    outcome = run("schema check", "t.csv")
    assert outcome.code == 2
    hidden(outcome.err)
