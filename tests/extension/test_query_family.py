"""A query family is one class and one line of its registry."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import jsonschema
import numpy as np
import pandas as pd
import pytest
from pydantic import Field

from adaptive_qs import answer
from adaptive_qs.errors import WorkloadError
from adaptive_qs.workload import FAMILIES
from adaptive_qs.workload.families import QueryFamily
from adaptive_qs.workload.file import WorkloadFile
from adaptive_qs.workload.matrices import CustomAxis
from scripts.make_reference import render

ROWS = pd.DataFrame({"age": [0, 1, 2, 3, 4, 5] * 100, "sex": [0, 1] * 300})
SCHEMA = {"age": 6, "sex": 2}


class WindowQueries(QueryFamily):
    """Every run of some number of values."""

    family: Literal["window"]
    """Runs of one width."""
    width: Annotated[int, Field(ge=1)] = 2
    """Values in each run."""

    def on_axis(self, attribute, read):
        if attribute.size < self.width:
            raise WorkloadError(f"{attribute.name!r} has fewer values than a window")
        starts = range(attribute.size - self.width + 1)
        cells = np.arange(attribute.size)
        return CustomAxis([(cells >= a) & (cells < a + self.width) for a in starts])


class FirstHalf(QueryFamily):
    """The lower half of the values."""

    def on_axis(self, attribute, read):
        return CustomAxis([np.arange(attribute.size) < attribute.size / 2])


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.setitem(FAMILIES, "window", WindowQueries)
    monkeypatch.setitem(FAMILIES, "first-half", FirstHalf)


def answered(queries, **part):
    workload = {"version": 1, "parts": [{**part, "queries": queries}]}
    found = answer(ROWS, SCHEMA, workload, rho=1e4, workers=1, beyond_limits=True, insecure_seed=1)
    return found.to_pandas()


def test_a_workload_file_asks_for_it_by_name_and_with_parameters():
    by_name = answered("window", attributes=[["age"]])
    assert by_name["estimate"].to_numpy() == pytest.approx([200] * 5, abs=1)
    wide = answered({"family": "window", "width": 3}, attributes=[["age"]])
    assert wide["estimate"].to_numpy() == pytest.approx([300] * 4, abs=1)
    both = answered({"age": {"family": "window", "width": 6}, "sex": "first-half"}, ways=[2])
    assert both["estimate"].to_numpy() == pytest.approx([300], abs=1)


@pytest.mark.parametrize(
    ("queries", "line"),
    [
        ({"family": "window", "width": 0}, "queries.width: must be at least 1"),
        ({"family": "first-half", "width": 2}, "queries.width: is not a known"),
        ({"family": "window", "width": 7}, "'age' has fewer values than a window"),
        ("windows", "queries"),
    ],
)
def test_its_parameters_are_checked_as_those_of_others(queries, line):
    with pytest.raises(WorkloadError, match=line):
        answered(queries, attributes=[["age"]])


def test_the_json_schema_knows_it():
    schema = json.loads(render("workload"))
    content = {"version": 1, "parts": [{"ways": [1], "queries": {"family": "window", "width": 3}}]}
    jsonschema.validate(content, schema)
    content["parts"][0]["queries"]["width"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema)
    assert WorkloadFile.parse({"version": 1, "parts": [{"ways": [1], "queries": "first-half"}]})
