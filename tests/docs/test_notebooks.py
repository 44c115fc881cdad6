"""Every notebook runs from top to bottom, and says what is stored where it has no fresh noise."""

import re

import pytest

from .notebooks import NOTEBOOKS, ROOT, code_cells, executed, read, said

pytestmark = pytest.mark.slow

MOST_KILOBYTES = 100


def test_there_is_a_notebook_for_each_of_the_jobs():
    assert [path.stem for path in NOTEBOOKS] == [
        "answers_with_error_bars",
        "how_good_is_it",
        "share_a_table",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_is_stored(path, tmp_path):
    fresh, stored = code_cells(executed(path, tmp_path)), code_cells(read(path))
    outputs = [output for cell in fresh for output in cell.outputs]
    assert [output for output in outputs if output.output_type == "error"] == []
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    same = [cell.metadata.get("tags", []) == ["same"] for cell in stored]
    assert sum(same) >= 2
    for repeated, new, old in zip(same, fresh, stored, strict=True):
        assert len(new.outputs) == len(old.outputs)
        assert not repeated or said(new) == said(old)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_its_output_and_without_the_machine(path):
    notebook = read(path)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) // 2
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(tmp|home|root|work|usr)/", text)
    assert len(text) < 1000 * MOST_KILOBYTES
    assert notebook.metadata.kernelspec.name == "python3"


def test_every_notebook_is_linked_from_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"](../examples/{path.name})" not in index] == []
