"""Run the notebooks in ``examples/`` as a reader would, each in a folder of its own.

    python -m tests.docs.notebooks

runs them and stores what they say. A cell whose metadata have the tag ``same`` says the same each
time: it has no noise, or noise from a seed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LINKED = ("datasets", "docs")
MOST_SECONDS = 300
"""Of one cell, on a machine that does other things beside it."""


def read(path: Path) -> Any:
    """A notebook as it is stored, valid."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def executed(path: Path, folder: Path) -> Any:
    """A notebook with what it says now; the empty folder stands for that of the project."""
    notebook = read(path)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    place = folder / "examples"
    place.mkdir()
    client = NotebookClient(
        notebook,
        timeout=MOST_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(place)}},
    )
    # The kernel imports the package from here, and leaves nothing in the home of the user.
    homes = {name: str(folder) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), **homes}):
        return client.execute()


def code_cells(notebook: Any) -> list[Any]:
    """The cells of a notebook that are run."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def said(cell: Any) -> list[str]:
    """What a cell says as text, output by output."""
    return [output.get("text") or output.data.get("text/plain", "") for output in cell.outputs]


if __name__ == "__main__":
    for source in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as temporary:
            nbformat.write(executed(source, Path(temporary)), source)
