"""What commands print is what is stored, and what they refuse changes nothing and shows no cell.

WRITE_TRANSCRIPTS=1 pytest tests/cli/test_transcripts.py    stores what is printed now

Texts are compared on a machine like the one that wrote the golden digests: on another, last digits
decide other figures.
"""

import os

import pytest

from ..golden.digests import read, recipe
from .transcripts import CANARY, read_cases, replay, write_cases

CASES = read_cases()
SHOWS_CELLS = "schema init", "schema check"
"""Commands that propose values of the table to its owner."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(2)
def test_commands_print_what_is_stored(name, run, request):
    if name.startswith("refused"):
        request.getfixturevalue("unspent")
    found, outcomes = replay(CASES[name], run)
    for words, outcome, unchanged in outcomes:
        last = outcome.err.splitlines()[-1:]
        if outcome.code in (2, 3, 4) and last:
            assert outcome.out == "" or words.startswith("schema check"), words
            assert last[0].startswith("error: "), words
            assert unchanged, words
        assert outcome.code in (0, 2, 3, 4), (words, outcome)
        assert not name.startswith("refused") or outcome.code, words
        assert CANARY not in outcome.err, words
        assert CANARY not in outcome.out or words.startswith(SHOWS_CELLS), words
    if "WRITE_TRANSCRIPTS" in os.environ:
        write_cases({**read_cases(), name: found})
    elif read()["recipe"] == recipe():
        assert found == CASES[name], "where this is meant: WRITE_TRANSCRIPTS=1 (see above)"
