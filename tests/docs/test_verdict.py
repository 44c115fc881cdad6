"""The guide explains the limits that the verdict has."""

import pytest

from adaptive_qs.evaluation import limits as limit

from .snippets import ROOT

GUIDE = (ROOT / "docs" / "guides" / "evaluate.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("\n## The verdict\n")[1].split("\n## ")[0]
ROWS = {line.split(" | ")[0].strip("| "): line for line in SECTION.splitlines() if "|" in line}


@pytest.mark.parametrize(
    ("about", "limits"),
    [
        ("marginals", [f"{limit.CLOSE:.0%}", f"{limit.USABLE:.0%}"]),
        ("marginals", [f"{limit.CLOSE_SINGLE:g} ", f"{limit.USABLE_SINGLE:g} "]),
        ("columns", [f"{limit.LOST_COLUMN:.0%}"]),
        ("associations", [f"{limit.CLEAR_V:g} ", f"{limit.LOST_PART:.0%}"]),
        ("models", [f"{limit.SMALL_LOSS:.0%}", f"{limit.LARGE_LOSS:.0%}"]),
    ],
)
def test_limits_in_the_guide_are_those_of_the_verdict(about, limits):
    assert [text for text in limits if text not in ROWS[about]] == []


def test_every_word_of_the_verdict_is_in_the_guide():
    words = {rule.word for rules in limit.RULES.values() for rule in rules} - {"queries"}
    assert [word for word in words if word not in SECTION] == []
