"""CSV files in blocks of whole rows, on threads that Python knows."""

import random
import threading

import pyarrow.csv as pacsv
import pytest

from adaptive_qs.data import readers
from adaptive_qs.data.csv_blocks import end_of_rows, one_ahead, row_blocks
from adaptive_qs.data.textfile import CheckedText
from adaptive_qs.errors import DataError


def cells(path, block, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_BYTES", block)
    with readers.open_file(path) as source:
        chunks = list(source.read(source.names))
    assert [chunk.done for chunk in chunks] == sorted(chunk.done for chunk in chunks)
    return [[cell for c in chunks for cell in c.columns[i].to_pylist()] for i in range(2)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("seed", range(10))
def test_the_size_of_a_block_changes_no_cell(end, seed, tmp_path, monkeypatch):
    draw = random.Random(seed)
    texts = ["a", "", "\ufeffb", '5" pipe', 'x"y"', '"q,r"', f'"s{end}t"', '"u""v"', '"w"x', '""']
    lines = ["", *(f"{draw.choice(texts)},{draw.choice(texts)}" for _ in range(300))]
    lines += ["z,z"] if sum(line.count('"') for line in lines) % 2 == 0 else ['5" z,z']
    path = tmp_path / "t.csv"
    path.write_bytes((end.join(["a,b", *lines]) + end).encode())
    whole = cells(path, 1 << 20, monkeypatch)
    assert len(whole[0]) == 301
    assert {cells(path, size, monkeypatch) == whole for size in (60, 61, 200, 1_000)} == {True}


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"1,2\n3", 4), (b"1,2\r3", 4), (b"1,2\r\n3", 5), (b"1,2\r", 0), (b"12", 0), (b"", 0),
        (b'"1\n', 0), (b'"1\n",2\n3', 7), (b'1"\n2"\n3', 6), (b'"1"2"\n3', 6), (b'"1""\n', 0),
        (b'1,"\r\n"\r', 0), (b'"1"\r\n2', 5),
    ],
)  # fmt: skip
def test_rows_end_outside_quoted_cells(text, end):
    assert end_of_rows(text) == end


def test_a_row_may_be_longer_than_what_is_read_at_once():
    text = iter([b"aaaa", b"aaa\n", b"bb\nc", b"\n", b""])
    assert list(row_blocks(lambda _: next(text), 4)) == [b"aaaaaaa\n", b"bb\n", b"c\n"]


@pytest.mark.parametrize("last", ["1", '"1', "1,2"])
def test_no_thread_of_arrow_sees_anything_of_python(last, tmp_path, monkeypatch):
    """One that does aborts the process if the interpreter shuts down meanwhile."""
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 5_000 + last)
    strangers, buffers = [], []
    read, parse = CheckedText.read, pacsv.read_csv

    def spied_read(self, size=-1):
        strangers.append(isinstance(threading.current_thread(), threading._DummyThread))
        return read(self, size)

    def spied_parse(source, **options):
        buffers.append(source.read_buffer().parent)
        source.seek(0)
        return parse(source, **options)

    monkeypatch.setattr(CheckedText, "read", spied_read)
    monkeypatch.setattr(readers.pacsv, "read_csv", spied_parse)
    try:
        cells(path, 5_000, monkeypatch)
    except DataError:
        assert last != "1,2"
    assert len(strangers) > 1
    assert not any(strangers)
    assert buffers
    assert all(buffer.is_mutable for buffer in buffers)  # Python's bytes are not


@pytest.mark.parametrize("stop", ["error", "close", "end"])
def test_the_thread_that_reads_ahead_ends_with_its_reader(stop):
    def items():
        yield from "ab"
        if stop == "error":
            raise ValueError("damaged")

    before = threading.active_count()
    ahead = one_ahead(items())
    assert next(ahead) == "a"
    assert threading.active_count() == before + 1
    if stop == "close":
        ahead.close()
    elif stop == "end":
        assert list(ahead) == ["b"]
    else:
        assert next(ahead) == "b"
        with pytest.raises(ValueError, match="damaged"):
            next(ahead)
    assert threading.active_count() == before
