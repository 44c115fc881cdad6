"""What `evaluate` prints stands in the order of what matters, in digits that can be read."""

import json
from pathlib import Path

import numpy as np
import pytest

from adaptive_qs.cli.figures import percent

NAMES = ["low", "high", "rare"]


@pytest.fixture
def said(run):
    """low <= high holds in the true table only; a few synthetic rows are far off in rare."""
    Path("s.json").write_text(json.dumps(dict.fromkeys(NAMES, 50)))
    rng = np.random.default_rng(1)
    for name, above in (("t.csv", 20), ("o.csv", -20)):
        low = rng.integers(20, 30, 1_000)
        rare = np.where(np.arange(1_000) < (2 if above > 0 else 40), 49, 0)
        rows = np.column_stack([low, low + above, rare])
        lines = [",".join(NAMES), *(",".join(map(str, row)) for row in rows)]
        Path(name).write_text("\n".join(lines) + "\n")
    outcome = run("evaluate", "t.csv", "o.csv", "--schema", "s.json", "--rule", "rare <= high")
    assert outcome.code == 0, outcome
    return outcome.out


def block(said, title):
    """First words of the lines of a table."""
    lines = said.split(f"\n  {title} ")[1].split("\n")[2:]
    return [line for line in (line.strip() for line in lines) if line]


def test_the_most_broken_rule_comes_first_and_large_shifts_have_a_table(said):
    rules = block(said, "rules")
    assert "found" in rules[0]
    assert "100 %" in rules[0]
    assert "declared" in rules[1]
    moved = block(said, "means that moved most")
    assert [line.split()[0] for line in moved[:2]] == ["high", "rare"]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"), (2e-29, "under 0.001 %"), (0.77, "77.0 %"), (1, "100 %"), (0.0024, "0.240 %"),
        (0.99999, "100.00 %"),
    ],
)  # fmt: skip
def test_shares_have_digits_that_can_be_read(share, text):
    assert percent(share) == text
