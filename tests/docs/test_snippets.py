"""The harness notices what a page gets wrong."""

import pytest

from .snippets import Reader, Snippet, commands, missing_line, snippets

MISTAKE = """\
$ adaptive-qs sample
error: Missing argument 'RELEASE'. See adaptive-qs sample --help.
"""


def follow(tmp_path, language, text):
    Reader(tmp_path).follow(Snippet(1, language, text, None, None))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "true\nfalse\n"),
        ("sh", "false | true\n"),
        ("sh", "false && adaptive-qs --version\n"),
        ("sh", "false | adaptive-qs --version\n"),
        ("sh", "true && adaptive-qs sample no.zip --out t.csv\n"),
        ("sh", "true | adaptive-qs schema init none.csv\n"),
        ("console", "$ adaptive-qs --version\nadaptive-qs version 0\n"),
        ("console", "$ adaptive-qs sample no.zip --out t.csv\n"),
        ("console", "$ adaptive-qs --version\nerror: none\n"),
        ("python", "print(1 / 0)\n"),
        ("text", "never printed\n"),
        ("json", '{"version": 1, "columns": []}'),
        ("json", '{"version": 1, "parts": []}'),
    ],
)
def test_a_block_that_does_not_do_what_it_says_fails(tmp_path, language, text):
    with pytest.raises(Exception):  # noqa: B017
        follow(tmp_path, language, text)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "echo one\n"),
        ("console", "$ adaptive-qs --version\nadaptive-qs 7.8.9\n"),
        ("console", MISTAKE),
        ("console", "$ echo one && adaptive-qs --version\none\nadaptive-qs 7.8.9\n"),
        ("console", "$ printf '\\n' | adaptive-qs schema check sizes.json --ask\n...\n"),
        ("json", '{"age": 85}'),
    ],
)
def test_a_block_that_does_passes(tmp_path, language, text):
    (tmp_path / "sizes.json").write_text('{"a": 2}')
    follow(tmp_path, language, text)


def test_numbers_rules_and_order_may_differ_but_every_line_must_come():
    said = "Done.\n  rows  1,234\n\n  ──────\n  error 1.2e-05\n  last  -3\n"
    assert missing_line(["Done.", "rows 7", "───", "error 3", "last 0"], said) is None
    assert missing_line(["last 0", "...", "", "Done."], said) is None
    assert missing_line(["Done.", "first 0"], said) == "first 0"
    assert missing_line(["Done.", "Done."], said) == "Done."


def test_digits_choose_among_combinations_of_columns_but_name_no_others():
    said = "  worst  age x job  0.2\n  2-way  3  job x town  0.1\n"
    assert missing_line(["worst job x town 0.3", "2-way 3 age x job 0.1"], said) is None
    for wrong in ("worst age x job x town 0.2", "worst age x sex 0.2", "best age x job 0.2"):
        assert missing_line([wrong], said) == wrong


def test_a_page_is_cut_into_blocks():
    page = (
        "Save this as `a.json`:\n\n```json\n{}\n```\n\n<!-- not run: takes a day -->\n"
        "```sh\nsleep 86400\n```\n"
    )
    assert snippets(page) == [
        Snippet(3, "json", "{}\n", "a.json", None),
        Snippet(8, "sh", "sleep 86400\n", None, "takes a day"),
    ]


def test_commands_may_go_on_in_the_next_line():
    found = commands("$ one \\\n    two\nsaid\n\n$ three\n")
    assert [(command.text.split(), command.shown) for command in found] == [
        (["one", "two"], ["said"]),
        (["three"], []),
    ]
