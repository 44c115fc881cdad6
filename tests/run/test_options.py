"""An option is a field of one dataclass: commands, signatures and pages follow from it."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import adaptive_qs
from adaptive_qs.cli.entry import commands, main
from adaptive_qs.cli.options import read_text
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.unit import NEIGHBOURS
from adaptive_qs.run.options import AnswerOptions, PlanOptions, SynthesizeOptions, read_options
from adaptive_qs.synthesizer import Synthesizer

SCHEMA = {"a": 3, "b": 2}
SURFACES = {
    "synthesize": (adaptive_qs.Synthesizer, SynthesizeOptions),
    "answer": (adaptive_qs.answer, AnswerOptions),
    "plan": (adaptive_qs.plan, PlanOptions),
}


@pytest.mark.parametrize("verb", SURFACES)
def test_commands_and_signatures_have_the_fields_and_their_defaults(verb):
    function, model = SURFACES[verb]
    parameters = inspect.signature(function).parameters
    flags = {each.name for each in commands().commands[verb].params}
    assert read_options(model)
    for each in read_options(model):
        assert parameters[each.name].default == each.default
        assert parameters[each.name].annotation == each.kind
        assert each.name in flags
        assert f"    {each.name}: " in function.__doc__
        assert each.option.help.endswith(".")


def test_choices_that_the_help_lists_are_those_that_there_are():
    shown = {each.name: each.option.help for each in read_options(SynthesizeOptions)}
    assert all(name in shown["neighbours"] for name in NEIGHBOURS)


WRONG = {
    "epsilon": ("0", "-1", "nan", "inf", "one"), "delta": ("0", "1", "2", "nan"),
    "rho": ("0", "-inf", "one"), "cost": ("0", "nan", "1e-300"), "learning_share": ("1", "nan"),
    "levels": ("x",), "engine": ("x",), "neighbours": ("x",),
    "max_candidates": ("0", "1.5"), "max_cells": ("-1", "many"), "max_memory": ("lots",),
    "workers": ("0", "x"), "insecure_seed": ("-1",), "public_rows": ("0", "1.5"),
    "rows_per_person": ("x", "0"), "mechanism": ("best",), "gap": ("0", "nan"),
}  # fmt: skip


FIELDS = {
    each.name: each for model in (SynthesizeOptions, AnswerOptions) for each in read_options(model)
}


def called(verb, table, schema, options):
    if verb == "synthesize":
        return Synthesizer(**options).fit(table, schema=schema)
    return adaptive_qs.answer(table, schema, 1, **options)


@pytest.mark.parametrize(("name", "text"), [(name, t) for name in WRONG for t in WRONG[name]])
def test_a_wrong_value_is_refused_in_the_same_sentence_everywhere(name, text, tmp_path, capsys):
    """And nothing is spent or written."""
    table, schema = str(tmp_path / "t.csv"), str(tmp_path / "s.json")
    Path(table).write_text("a,p\n1,1\n2,0\n")
    Path(schema).write_text(f'{{"version": 1, "columns": {COLUMNS}, "person": "p"}}')
    options = {"epsilon": 1, "rows_per_person": 2} | {name: read_text(FIELDS[name], text)}
    if name in ("rho", "cost"):
        del options["epsilon"]
    words = [f"--{key.replace('_', '-')}={options[key]}" for key in options if key != name]
    words += [f"--{name.replace('_', '-')}={text}", "--schema", schema]
    said = []
    for verb in ("synthesize", "answer"):
        if name not in {each.name for each in read_options(SURFACES[verb][1])}:
            continue
        with pytest.raises(InputError) as refused:
            called(verb, table, schema, options)
        assert main([verb, table, "--out", str(tmp_path / "o.csv"), *words]) == 2
        assert capsys.readouterr().err == f"error: {refused.value}\n"
        said.append(str(refused.value))
    assert len(set(said)) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "s.json"}


COLUMNS = '[{"name": "a", "type": "integer", "min": 0, "max": 2}]'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resume": 1}, "resume is 1. Use True or False"),
        ({"unreviewed_schema": "no"}, "unreviewed-schema is 'no'. Use True or False"),
        ({"target": 3}, "target is 3. Use a text"),
        ({"ledger": 3}, "ledger is 3. Use the path of a file"),
        ({"temp_folder": 3}, "temp-folder is 3. Use the path of a file"),
    ],
)
def test_values_that_only_python_can_give_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        Synthesizer(epsilon=1, **options).fit(None, schema=SCHEMA)


def test_numbers_of_numpy_are_numbers():
    adaptive_qs.plan(SCHEMA, 1, epsilon=np.float64(1), workers=np.int64(1), gap=np.float32(0.5))


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match=r"plan\(\) got an unexpected keyword argument 'jobs'"):
        adaptive_qs.plan(SCHEMA, jobs=1)
    with pytest.raises(TypeError, match="jobs"):
        Synthesizer(jobs=1)
    with pytest.raises(InputError, match="Synthesizer has no parameter 'jobs'"):
        Synthesizer().set_params(jobs=1)


def test_a_synthesizer_is_an_estimator_of_scikit_learn():
    workload = [1, 2]
    made = Synthesizer(epsilon=-1, workload=workload)
    twin = clone(made)
    assert twin.get_params() == made.get_params()
    assert twin.set_params(epsilon=2) is twin
    assert (made.epsilon, twin.epsilon) == (-1, 2)
    assert repr(twin) == "Synthesizer(epsilon=2, workload=[1, 2])"
    pipeline = make_pipeline(made)
    assert pipeline.get_params()["synthesizer__workload"] is workload
    pipeline.set_params(synthesizer__epsilon=3)
    assert made.epsilon == 3
    with pytest.raises(NotFittedError, match="call fit"):
        made.sample()


def test_no_part_of_scikit_learn_is_imported():
    code = (
        "import sys; from adaptive_qs import Synthesizer, answer, plan\n"
        "Synthesizer(rho=1).fit(__import__('pandas').DataFrame({'a': [0, 1]}), schema={'a': 2})\n"
        "found = [name for name in sys.modules if name.partition('.')[0] == 'sklearn']\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
