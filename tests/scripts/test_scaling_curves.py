"""The curves of docs/scaling.md: each point is of the case that its row names."""

from __future__ import annotations

import csv
import json
import math

import pytest

from scripts.speed import scaling_curves


@pytest.mark.slow
def test_every_curve_is_measured_written_and_drawn(tmp_path, monkeypatch):
    usual = {"rows": 100, "attributes": 3, "size": 2, "degree": 2}
    varied = {"rows": (50, 100), "attributes": (2, 3), "size": (2, 5), "degree": (1, 3)}
    seen = []

    def seconds_of(**case):
        seen.append(case)
        return real(**case)

    real = scaling_curves.seconds_of
    monkeypatch.setattr(scaling_curves, "USUAL", usual)
    monkeypatch.setattr(scaling_curves, "CURVES", varied)
    monkeypatch.setattr(scaling_curves, "seconds_of", seconds_of)
    scaling_curves.main(folder=tmp_path)
    assert seen == [{**usual, name: value} for name, some in varied.items() for value in some]
    with (tmp_path / "scaling_curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    for case, row in zip(seen, rows, strict=True):
        assert {name: int(row[name]) for name in usual} == case
        assert int(row["marginals"]) == math.comb(case["attributes"], case["degree"])
        assert float(row["cpu_s"]) >= 0
    assert len(json.loads((tmp_path / "scaling_curves.json").read_text())["numbers"]) == len(rows)
    drawn = (tmp_path / "scaling_curves.svg").read_text()
    for curve in varied:
        assert f">{curve}<" in drawn
