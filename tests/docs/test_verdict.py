"""The guide explains the limits that the verdict has."""

import pytest

from adaptive_qs.evaluation import associations, columns, models, rows, rules, scale
from adaptive_qs.evaluation.checks import all_checks

from .snippets import ROOT

GUIDE = (ROOT / "docs" / "guides" / "evaluate.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("\n## The verdict\n")[1].split("\n## ")[0]
ROWS = {line.split(" | ")[0].strip("| "): line for line in SECTION.splitlines() if "|" in line}


@pytest.mark.parametrize(
    ("about", "limits"),
    [
        ("marginals", [f"{scale.CLOSE:.0%}", f"{scale.USABLE:.0%}"]),
        ("marginals", [f"{scale.CLOSE_SINGLE:g} ", f"{scale.USABLE_SINGLE:g} "]),
        ("columns", [f"{columns.LOST_COLUMN:.0%}"]),
        ("associations", [f"{associations.CLEAR_V:g} ", f"{associations.LOST_PART:.0%}"]),
        ("models", [f"{models.SMALL_LOSS:.0%}", f"{models.LARGE_LOSS:.0%}"]),
    ],
)
def test_limits_in_the_guide_are_those_of_the_verdict(about, limits):
    assert [text for text in limits if text not in ROWS[about]] == []


def test_every_word_of_the_verdict_is_in_the_guide():
    words = {rule.word for check in all_checks() for rule in check.rules} - {"queries"}
    assert [word for word in words if word not in SECTION] == []


def test_every_threshold_is_in_the_guide():
    shares = (scale.CLOSE, scale.USABLE, models.SMALL_LOSS, rules.BROKEN, associations.WEAK_LOST,
              associations.LEAST_OFF_PART, scale.GONE, scale.STEP_ERROR, rows.ODD_SHARE,
              rows.IMPOSSIBLE, rows.COPIED, columns.LOST_COLUMN, columns.MOVED_MEAN)  # fmt: skip
    for share in shares:
        assert f"{100 * share:g}%" in SECTION
    for value in (associations.CLEAR_V, associations.KEPT_V, scale.CLOSE_SINGLE):
        assert f" {value}" in SECTION
    assert f"at least {associations.LEAST_EFFECT}," in " ".join(SECTION.split())
    for deviations in (scale.DOUBTFUL, scale.DEVIATIONS):
        assert f"more than {deviations} standard" in " ".join(SECTION.split())
