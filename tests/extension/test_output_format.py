"""A format of tables that the package does not know, by the suffix of a file name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import answer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError
from adaptive_qs.release.bundle import manifest_path
from adaptive_qs.table.files import FORMATS
from adaptive_qs.table.write import OutputFormat

SCHEMA = {"version": 1, "columns": [{"name": "a", "type": "integer", "min": 0, "max": 3}]}
FRAME = pd.DataFrame({"a": np.arange(200) % 4})


class JsonLines(OutputFormat):
    """One JSON object for each row."""

    is_text = False

    def write(self, tables, texts, file):
        for table in tables:
            self._lines(table, file)

    @contextmanager
    def batch_writer(self, schema, dictionaries, file):
        yield lambda batch: self._lines(batch, file)

    def _lines(self, rows, file):
        for row in rows.to_pylist():
            file.write(json.dumps(row).encode() + b"\n")


@pytest.fixture(autouse=True)
def lines(monkeypatch):
    monkeypatch.setitem(FORMATS, ".jsonl", JsonLines())


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_synthesize_writes_it(tmp_path, capsys):
    """It is not read: no command is recommended that would, and those asked to do it say so."""
    data, schema, out = (tmp_path / name for name in ("t.csv", "schema.json", "made.jsonl"))
    FRAME.to_csv(data, index=False)
    schema.write_text(json.dumps(SCHEMA))
    command = ["synthesize", str(data), "--schema", str(schema), "--out", str(out)]
    assert main([*command, "--rho", "1", "--seed", "1"]) == 0
    made = rows_of(out)
    assert made
    assert {row["a"] for row in made} <= {0, 1, 2, 3}
    assert manifest_path(out).exists()
    assert main(["schema", "check", str(out)]) == 2
    assert "made.jsonl is a table, not a schema" in capsys.readouterr().err


def test_answers_are_written_in_it(tmp_path):
    out = tmp_path / "answers.jsonl"
    answers = answer(FRAME, SCHEMA, 1, rho=1)
    assert answers.write(out) == 4 == len(rows_of(out))


def test_the_help_of_every_command_that_writes_tables_lists_it_cheaply():
    code = (
        "import sys\n"
        "from adaptive_qs.table.files import FORMATS\n"
        "FORMATS['.jsonl'] = 'nowhere:LINES'\n"
        "from adaptive_qs.cli import main\n"
        "for verb in ('synthesize', 'sample', 'answer'):\n"
        "    assert main([verb, '--help']) == 0\n"
        "assert not {'numpy', 'pandas', 'pyarrow', 'numba', 'scipy'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout
    *others, last = [*FORMATS]
    assert last == ".jsonl"
    assert said.count(f"{', '.join(others)} or {last}") == 3


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(InputError, match=r"end the name in \.csv, .*\.db, \.jsonl"):
        answer(FRAME, SCHEMA, 1, rho=1).write(tmp_path / "a.xyz")
