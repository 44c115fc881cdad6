"""Whatever text comes, the answer is one line and a documented exit code, never a traceback."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adaptive_qs.errors import BudgetExceeded

FUZZ = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
numbers = st.floats().map(repr) | st.integers().map(str) | st.text(max_size=8)


@pytest.fixture
def command(run, monkeypatch):
    """Run `synthesize` up to the first charge, which is refused with exit code 3."""

    def refuse(*_):
        raise BudgetExceeded("the first charge")

    monkeypatch.setattr("adaptive_qs.synthesizer.job.Mechanisms", refuse)
    files = sorted(Path.cwd().iterdir())

    def call(*arguments):
        base = ["synthesize", "t.csv", "--schema", "s.json", "--out", "o.csv"]
        outcome = run(*base, *arguments)
        assert outcome.code in (2, 3, 4), outcome
        assert outcome.out == ""
        assert len(outcome.err.splitlines()) <= 2
        assert outcome.err.startswith(("error: ", "warning: "))
        assert sorted(Path.cwd().iterdir()) == files

    return call


@FUZZ
@given(
    option=st.sampled_from(
        ["delta", "ways", "rows", "seed", "max-memory", "workers", "reference", "insecure-seed"]
    ),
    value=numbers,
)
@example(option="seed", value="9" * 400)
@example(option="rows", value="9" * 400)
@example(option="max-memory", value="9" * 400)
@example(option="insecure-seed", value="9" * 400)
def test_option_values(command, option, value):
    command("--epsilon", "1", f"--{option}={value}")


@FUZZ
@given(epsilon=numbers)
@example(epsilon="1e308")
@example(epsilon="5e-324")
def test_budgets(command, epsilon):
    command(f"--epsilon={epsilon}")
    command(f"--rho={epsilon}")


@FUZZ
@given(
    option=st.sampled_from(
        ["cost", "rho", "delta", "confidence", "gap", "mechanism", "queries", "ways", "jobs",
         "max-memory", "insecure-seed"]
    ),
    value=numbers,
)  # fmt: skip
@example(option="jobs", value="9" * 400)
@example(option="gap", value="5e-324")
@example(option="confidence", value="5e-324")
def test_option_values_of_answer(run, monkeypatch, option, value):
    def refuse(*_):
        raise BudgetExceeded("the first charge")

    monkeypatch.setattr("adaptive_qs.answering.job.Mechanisms", refuse)
    base = ["answer", "t.csv", "--schema", "s.json", "--out", "o.csv", "--epsilon", "1"]
    outcome = run(*base, f"--{option}={value}")
    assert outcome.code in (2, 3, 4), outcome
    assert outcome.out == ""
    assert outcome.err.startswith(("error: ", "warning: "))
    assert not Path("o.csv").exists()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "parts", "ways", "attributes", "queries", "weight", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@FUZZ
@given(content=st.binary(max_size=40) | json_values.map(lambda value: json.dumps(value).encode()))
def test_workload_files(command, content):
    Path("w.json").write_bytes(content)
    command("--epsilon", "1", "--workload", "w.json")


@FUZZ
@given(content=st.binary(max_size=60))
def test_tables(command, content):
    Path("t.csv").write_bytes(b"job,age,day\n" + content)
    command("--epsilon", "1")
