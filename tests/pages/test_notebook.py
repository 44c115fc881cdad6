"""What notebooks show: results as text, and a run at work as bars."""

from __future__ import annotations

import io
import sys

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbclient import NotebookClient

import adaptive_qs
from adaptive_qs.pages.words import PHASES, ProgressBar

NASTY = "<b>a&b</b>"
SCHEMA = {"version": 1, "columns": [
    {"name": NASTY, "type": "integer", "min": 0, "max": 3},
    {"name": "y", "type": "boolean"},
]}  # fmt: skip
FRAME = pd.DataFrame({NASTY: np.arange(200) % 4, "y": np.arange(200) % 3 == 0})


@pytest.fixture(scope="module")
def model():
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return adaptive_qs.Synthesizer(rho=1, workers=1, insecure_seed=1).fit(FRAME, schema=SCHEMA)


def test_results_show_their_text(model):
    assert f"epsilon {model.epsilon_:g}, delta 1e-09" in repr(model.release_)
    assert "NOT PRIVATE" in repr(model.release_)
    planned = adaptive_qs.plan(SCHEMA, 1, rho=1)
    assert f"{planned.queries:,} queries" in repr(planned)
    assert f"{planned.rmse:.4g} rows" in repr(planned)
    answers = adaptive_qs.answer(FRAME, SCHEMA, 1, rho=1)
    assert "reading them spends the budget, once" in repr(answers)
    assert len(list(answers.batches())) > 0  # nothing was read for it
    assert "NOT PRIVATE" not in repr(answers)
    compared = adaptive_qs.evaluate(FRAME, model.sample(100, seed=1), SCHEMA)
    assert f"mean L1 error {compared.workload.mean_l1:.4g} and largest" in repr(compared)
    assert "owner only" in repr(compared)
    assert "200" not in repr(compared)  # the number of rows


def test_a_bar_is_silent_where_nobody_looks(capsys):
    bar = ProgressBar()
    bar("read", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_in_a_terminal_is_one_line(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = ProgressBar()
    for done in range(0, 10_001):
        bar("read", done, 10_000)
    bar("fit", 0, 0)
    lines = stream.getvalue().split("\r")[1:]
    assert lines[0].startswith("reading the table: 0 %")
    assert any(line.startswith("reading the table: 100 %") for line in lines)
    assert lines[-1].startswith("fitting the table: 0 %")
    assert len(lines) == 102  # not every report
    assert "\n" not in stream.getvalue()


def test_every_phase_of_a_run_has_words():
    seen = set()
    adaptive_qs.Synthesizer(rho=1, workers=1, progress=lambda phase, *_: seen.add(phase)).fit(
        FRAME, schema=SCHEMA
    )
    assert set() < seen <= PHASES.keys()


def test_a_notebook_shows_the_line():
    """In a real kernel."""
    code = (
        "from adaptive_qs import ProgressBar\n"
        "bar = ProgressBar()\n"
        "for done in range(51): bar('read', done, 50)\n"
        "bar('fit', 3, 4)\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = "".join(output["text"] for output in notebook.cells[0].outputs)
    assert "reading the table: 100 %" in shown
    assert "fitting the table: 75 %" in shown.split("\r")[-1]
