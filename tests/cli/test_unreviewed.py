"""A schema that says that it was taken from the data is not used to spend budget unless asked."""

import json
import warnings
from pathlib import Path

import pytest

from adaptive_qs.answering.api import answer
from adaptive_qs.errors import SchemaError
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.privacy.events import Cost
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.schema import UNREVIEWED, Schema

from .conftest import done, refused
from .transcripts import SCHEMA

DRAFT = {**SCHEMA, "open": ["publish"]}
VERBS = {"synthesize": "o.csv", "answer": "a.csv"}


def command(verb, *more, data="t.csv"):
    ends = ["--out", VERBS[verb], "--epsilon", "1", "--ways", "1"]
    return [verb, data, "--schema", "draft.json", *ends, *more]


@pytest.fixture(autouse=True)
def draft(folder):
    Path("draft.json").write_text(json.dumps(DRAFT))
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_refused_before_anything_is_read_or_reserved(verb, run, folder):
    LedgerBook.create("l", Cost.within(9), {"rho": 9, "delta": 1e-9}).close()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    said = refused(run(*command(verb, "--ledger", "l", data="no such table.csv")))
    for word in ("taken from the data", "open questions (the whole table", "--unreviewed-schema"):
        assert word in said
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_taken_when_asked_and_the_statement_says_what_is_not_covered(verb, run):
    outcome = done(run(*command(verb, "--unreviewed-schema")))
    assert f"warning: draft.json: {UNREVIEWED}" in outcome.err
    (manifest,) = Path().glob(f"{VERBS[verb]}*manifest*")
    assert "NOT COVERED" in manifest.read_text()
    Path("draft.json").write_text(json.dumps(SCHEMA))
    outcome = run(*command(verb, "--force"))  # a reviewed one needs no option
    assert (outcome.code, outcome.err) == (0, "")


def test_python_refuses_it_alike():
    schema = Schema.parse(DRAFT)
    calls = {
        "synthesize": lambda **more: Synthesizer(epsilon=1, workload=1, **more).fit(
            "t.csv", schema=schema
        ),
        "answer": lambda **more: answer("t.csv", schema, 1, epsilon=1, **more),
    }
    for call in calls.values():
        with pytest.raises(SchemaError, match="unreviewed_schema=True"):
            call()
        with pytest.warns(UserWarning, match=UNREVIEWED) as caught:
            call(unreviewed_schema=True)
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer("t.csv", Schema.parse(SCHEMA), 1, epsilon=1)
