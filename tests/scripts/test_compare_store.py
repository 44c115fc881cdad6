"""The results file: what survives a crash, and who may write it."""

import json

import pytest

from scripts.compare.complaint import Complaint
from scripts.compare.store import Store, read_records


def lines(path):
    return path.read_text().splitlines()


def test_records_are_there_for_the_next_run(tmp_path):
    path = tmp_path / "new" / "r.jsonl"
    with Store(path) as store:
        store.add({"key": "a", "value": 1})
        store.add({"key": "b", "value": 2})
        store.add({"key": "a", "value": 3})
    with Store(path) as store:
        assert {k: r["value"] for k, r in store.records.items()} == {"a": 3, "b": 2}
        assert not store.dropped
    assert len(lines(path)) == 3


@pytest.mark.parametrize("kept", range(1, 20, 6))
def test_a_torn_last_line_is_dropped_and_the_next_one_is_whole(tmp_path, kept):
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.add({"key": "a", "value": 1})
        whole = path.read_bytes()
        store.add({"key": "b", "value": 2})
    path.write_bytes(path.read_bytes()[: len(whole) + kept])
    with Store(path) as store:
        assert store.dropped
        assert list(store.records) == ["a"]
        store.add({"key": "c"})
    assert [json.loads(line)["key"] for line in lines(path)] == ["a", "c"]


def test_a_reader_without_the_lock_passes_over_a_torn_line(tmp_path):
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.add({"key": "a"})
        path.write_bytes(path.read_bytes() + b'{"key": "b"')
        assert list(read_records(path)) == ["a"]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"key": "a"}\n{"key": \n{"key": "c"}\n')
    with pytest.raises(Complaint, match=r"r\.jsonl: line 2 is damaged"):
        Store(path)
    assert len(lines(path)) == 3


def test_two_harnesses_on_one_file_are_refused(tmp_path):
    path = tmp_path / "r.jsonl"
    with Store(path), pytest.raises(Complaint, match="another harness"):
        Store(path)
    with Store(path) as store:
        store.add({"key": "a"})
