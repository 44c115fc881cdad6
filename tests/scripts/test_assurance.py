"""Which measured sections the assurance script uses again, and what a failed one becomes."""

import json
from dataclasses import asdict, replace

import pytest

from scripts.speed.assurance import (
    ALONE,
    QUICK,
    SECTIONS,
    Parts,
    Scale,
)

HERE = {"hash": "a" * 40, "dirty": False}
ELSEWHERE = {"hash": "b" * 40, "dirty": False}
CHANGED = {"hash": "a" * 40, "dirty": True}


def write(path, commit=HERE, scale=QUICK, **found):
    content = {"passed": True, "seconds": 1.5, "scale": asdict(scale), "commit": commit, **found}
    path.write_text(json.dumps(content))


class Measure:
    """Stands for the processes that measure; notes what they were asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, name, out):
        self.asked.append(name)
        write(out, fresh=True)
        return 0


@pytest.mark.parametrize(
    ("commit", "part", "strictly", "accepting"),
    [
        (HERE, {}, True, True),
        (HERE, {"commit": ELSEWHERE}, False, True),
        (CHANGED, {}, False, True),
        (None, {}, False, True),
        (HERE, {"commit": CHANGED}, False, False),
        (CHANGED, {"commit": CHANGED}, False, False),
        (None, {"commit": None}, False, False),
        (HERE, {"scale": Scale()}, False, False),
        (HERE, {"scale": replace(QUICK, kills=1)}, False, False),
        (HERE, {"passed": False}, True, True),
        (HERE, {"passed": False, "error": "OSError: full"}, False, False),
    ],
)
def test_a_part_is_used_for_its_own_scale_and_commit(tmp_path, commit, part, strictly, accepting):
    for accept_older, used in ((False, strictly), (True, accepting)):
        write(tmp_path / "kills.json", **part)
        measure = Measure()
        found = Parts(tmp_path, QUICK, commit, accept_older).section("kills", measure)
        assert measure.asked == ([] if used else ["kills"])
        assert ("fresh" in found) == (not used)
        assert found["other_commit"] == (found["commit"] != commit)


def test_a_failed_section_does_not_end_the_others(tmp_path, capsys):
    write(tmp_path / "b.json", commit=ELSEWHERE)
    order = []

    def measure(name, out):
        order.append(name)
        if name == "b":
            return -9
        write(out, passed=name != "c")
        return int(name == "c")

    assert set(ALONE) < set(SECTIONS)
    names = [ALONE[0], "a", "b", "c", "d"]
    found = Parts(tmp_path, QUICK, HERE).sections(names, 2, measure)
    assert {name: part["passed"] for name, part in found.items()} == {
        "a": True, "b": False, "c": False, "d": True, ALONE[0]: True,
    }  # fmt: skip
    assert found["b"]["error"] == "its process ended with code -9 and no figures"
    assert "error" not in found["c"]
    assert order[-1] == ALONE[0]
    assert "b: FAILED its process ended with code -9" in capsys.readouterr().out
