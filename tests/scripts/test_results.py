import csv
import json
import os
import socket

import numpy as np
import pytest

from scripts.results import write_atomically, write_results


def test_a_result_says_how_it_was_made_and_names_neither_machine_nor_folders(tmp_path):
    numbers = {"error": np.float64(0.25), "runs": np.arange(3), "ok": np.bool_(True)}
    rows = [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    path = write_results("trial", numbers, {"epsilon": 1}, [7], rows, tmp_path / "new")
    assert path.name == "trial.json"
    document = json.loads(path.read_text())
    assert document["numbers"] == {"error": 0.25, "runs": [0, 1, 2], "ok": True}
    assert document["config"] == {"epsilon": 1}
    assert document["seeds"] == [7]
    environment = document["environment"]
    assert environment["packages"]["numpy"] == np.__version__
    assert environment["python"].startswith("3.")
    assert environment["cores"] >= 1
    assert environment["cpu"]
    assert document["date"].endswith("+00:00")
    for private in (socket.gethostname(), os.getcwd(), str(tmp_path)):
        assert private not in path.read_text()
    table = list(csv.DictReader(path.with_suffix(".csv").open(newline="")))
    assert table == [{"a": "1", "b": ""}, {"a": "2", "b": "x"}]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]
    assert path.read_text() == "old"
