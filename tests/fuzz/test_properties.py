"""Each property with a few hundred examples, the same on every machine."""

import pytest
from hypothesis import HealthCheck, settings

from .properties import PROPERTIES

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
