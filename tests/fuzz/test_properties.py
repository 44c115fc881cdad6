"""Each property with a few hundred examples, the same on every machine."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from . import long
from .properties import PROPERTIES, Property

pytestmark = pytest.mark.slow

EXAMPLES = {"csv": 150, "frames": 100, "parquet": 120, "schema": 250, "workload": 250,
            "commands": 100, "releases": 100}  # fmt: skip


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name):
    config = settings(
        max_examples=EXAMPLES[name],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    assert PROPERTIES[name].run(config) >= EXAMPLES[name]


def test_a_long_run_tells_what_fails(monkeypatch):
    def check(number):
        assert number < 7

    monkeypatch.setattr(long, "PROPERTIES", {"small": Property(st.integers(0, 99), check)})
    failures = []
    found = long.run(0.01, 5, failures)
    assert found["failures"] == len(failures) > 0
    assert "example=7" in failures[0]
