"""The review of a proposal: questions, answers, reasons that no release has."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import InputError, SchemaError
from adaptive_qs.table.propose import propose
from adaptive_qs.table.review import QUESTIONS, answer, list_questions
from adaptive_qs.table.schema import (
    DeclaredRule,
    Schema,
    check_reviewed,
    is_unreviewed,
    open_topics,
)

N = 900
RNG = np.random.default_rng(8)
TABLE = pd.DataFrame(
    {
        "user_id": RNG.integers(0, 300, N),
        "key": np.arange(N),
        "height": np.where(RNG.random(N) < 0.1, -1, RNG.integers(150, 200, N)),
        "town": RNG.choice(["Bonn", "Köln", "Ulm"], N),
        "size": RNG.choice(["S", "M", "L"], N),
        "when": [f"{1 + i % 12:02}/{1 + i % 7:02}/2020" for i in range(N)],
    }
)


@pytest.fixture(scope="module")
def proposed():
    return propose(TABLE).changed(
        rules=[DeclaredRule(rule="height is missing -> town = Bonn", open=("rule",), why=("seen",))]
    )


def answered(schema, **answers):
    for topic, _, proposal in list_questions(schema):
        schema = answer(schema, topic, answers.get(topic, proposal))
    return schema


def test_enter_accepts_everything_in_at_most_eight_questions(proposed):
    questions = list_questions(proposed)
    assert len(questions) == len(QUESTIONS) == 8
    found = answered(proposed)
    assert not is_unreviewed(found)
    check_reviewed(found, unreviewed_schema=False)
    assert found.person == "user_id"
    assert all("answer on" in " ".join(column.why) for column in found.columns)


def test_answers_change_what_they_name(proposed):
    found = answered(
        proposed, publish="town", person="-", missing="height", limits="height=100..220",
        order="size", format="when", rule="1",
    )  # fmt: skip
    height, size, when = map(found.column, ("height", "size", "when"))
    assert not height.missing
    assert height.bin_starts[0] == 100
    assert (height.max, height.outside) == (220, "clip")
    assert not size.ordered
    assert when.format == "%m/%d/%Y"
    assert (found.rules, found.person) == ((), None)
    assert [column.name for column in found.generated] == ["key", "town"]
    assert [*found.written] == [*TABLE.columns]
    learnt = answered(proposed, values="town").column("town")
    assert (learnt.private_values, learnt.catch_all) == (100, "other")  # not how many there are


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("order", "town"), ("rule", "2"), ("limits", "height"), ("limits", "height=9..1"),
        ("limits", "height=nan..inf"), ("limits", "height=1e9.."),
        ("person", "user_id, key"), ("person", "user_id, user_id"), ("publish", "height=0..9"),
        ("format", "when, when"), ("publish", "-, town"), ("person", "-, user_id"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_followed_is_refused(proposed, topic, text):
    with pytest.raises(InputError):
        answer(proposed, topic, text)


def test_names_with_commas_and_equals_signs_can_be_named():
    numbers = {name: RNG.integers(0, 40, N) for name in ("net, gross", "a=b", "c")}
    found = answered(propose(pd.DataFrame(numbers)), limits="`net, gross`=0..50, a=b=0..60")
    assert [column.max for column in found.columns] == [50, 60, 39]
    found = answered(propose(pd.DataFrame(numbers)), publish="c,`net, gross`", limits="")
    assert [*found.names] == ["a=b"]


def test_a_marker_of_any_size_can_be_a_value():
    table = pd.DataFrame({"hours": [*range(60), 999_999_999] * 20})
    found = answered(propose(table), missing="hours", limits="").column("hours")
    assert (found.max, found.bin_starts[-2:]) == (999_999_999, (60, 999_999_999))


def test_the_owner_is_shown_what_of_the_rows_generated_cells_and_clipped_limits_have():
    """Constants, the letters of keys, and limits between values that lie far away on both sides."""
    fees = np.where(np.arange(N) < 2, [[-(10**9)], [10**9]], RNG.integers(20, 60, N)).max(axis=0)
    fees[0] = -(10**9)
    keys = [f"AB12{k:06}" for k in range(N)]
    schema = propose(TABLE.assign(key=keys, town="Bonn", fee=fees))
    asked = {topic: " ".join(lines) for topic, lines, _ in list_questions(schema)}
    assert "AB12000{999}" in asked["publish"]
    assert "town: the same value in every row (comes back as Bonn)" in asked["publish"]
    assert "fee: 20 to 59, clipped beyond (occur in the rows)" in asked["limits"]


def test_no_reason_reaches_a_release(proposed, tmp_path):
    schema = answered(proposed, person="-", rule="1")
    fitted = Synthesizer(rho=1.0, insecure_seed=1).fit(TABLE, schema=schema)
    fitted.save(tmp_path / "r.zip")
    import zipfile

    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        said = b"".join(map(archive.read, archive.namelist()))
    for column in schema.columns:
        assert column.why
        assert not any(why.encode() in said for why in column.why)
    assert '"why"' in schema.to_json(reasons=True)
    assert '"why"' not in schema.to_json()
    assert schema.fingerprint == Schema.parse(json.loads(schema.to_json())).fingerprint
    with pytest.raises(SchemaError, match="open questions"):
        Synthesizer(rho=1.0).fit(TABLE, schema=proposed)


def test_the_terminal_asks_until_an_answer_fits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    TABLE.assign(**{"\x1b[31m": "a"}).to_csv("t.csv", index=False)
    assert main(["schema", "init", "t.csv", "--out", "p.json"]) == 0
    assert "schema check p.json --ask" in capsys.readouterr().out
    topics = open_topics(Schema.load("p.json"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("nobody\n" + "\n" * len(topics)))
    assert main(["schema", "check", "p.json", "--ask"]) == 0
    assert "'nobody' is none of" in (shown := capsys.readouterr().out)
    assert "?[31m" in shown
    assert "\x1b" not in shown
    assert not is_unreviewed(Schema.load("p.json"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["schema", "init", "t.csv", "--out", "q.json", "--ask"]) == 2
    assert not Path("q.json").exists()
