"""The options of a run are the same ones, with the same defaults, wherever they are given."""

from dataclasses import MISSING, fields
from inspect import signature

import pytest

from adaptive_qs.answering.api import answer
from adaptive_qs.arguments import DEFAULT_SHARE
from adaptive_qs.cli.entry import commands
from adaptive_qs.cli.options import OF_ANSWERS, OF_PLAN, OF_TABLES
from adaptive_qs.run import RunOptions
from adaptive_qs.synthesizer import Synthesizer

DEFAULTS = {
    field.name: DEFAULT_SHARE if field.default is MISSING else field.default
    for field in fields(RunOptions)
}
OF_LOOPS = {"target", "max_candidates", "max_cells"}
"""What only tables have: answers leave nothing out, and serve no target."""
OF_BATCHES = {
    "jobs" if name == "workers" else name: value
    for name, value in DEFAULTS.items()
    if name not in OF_LOOPS
}


def test_the_command_line_has_all_of_them_and_their_defaults():
    for verb, names in (("synthesize", OF_TABLES), ("answer", OF_ANSWERS), ("plan", OF_PLAN)):
        found = {each.name: each.default for each in commands().commands[verb].params}
        expected = {name: (DEFAULTS | {"jobs": None})[name] for name in names}
        assert {name: found[name] for name in names} == expected
    assert set(OF_TABLES) == DEFAULTS.keys() - {"cost"}
    assert set(OF_ANSWERS) == OF_BATCHES.keys()
    assert OF_LOOPS < set(OF_PLAN) < {*OF_ANSWERS, *OF_LOOPS}


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (Synthesizer, {name: value for name, value in DEFAULTS.items() if name != "cost"}),
        (answer, OF_BATCHES),
    ],
)
def test_callers_of_python_have_all_of_them_and_their_defaults(function, named):
    parameters = signature(function).parameters
    assert {name: parameters[name].default for name in named} == named


def test_what_is_no_option_of_a_run_is_left_out():
    given = {"learning_share": 0.2, "rho": 1.0, "workload": 2, "levels": "off"}
    options = RunOptions.among(given, "workload", "levels")
    assert options == RunOptions(learning_share=0.2, rho=1.0)
    assert options.budgeted
    with pytest.raises(TypeError, match="levels"):
        RunOptions.among(given, "workload")
    assert not RunOptions(learning_share=0.2, delta=1e-9).budgeted
    assert RunOptions(learning_share=0.2, insecure_seed=0).insecure
