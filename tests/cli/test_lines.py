"""Notes, warnings and errors are one line each, whatever names they quote."""

import pytest

from adaptive_qs.cli.output import fail, note, warn

NAMES = ["a\x1b[2Jb", "a\nb", "a\r\x07b", "a\u202eb", "a\x9bb"]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("say", [note, warn, fail])
@pytest.mark.parametrize("name", NAMES)
def test_control_characters_do_not_reach_the_terminal(name, say, terminal, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    say(f"{name}.csv: caf\u00e9")
    said = capsys.readouterr().err
    assert said.endswith("caf\u00e9\n")
    assert said.removesuffix("\n").isprintable()
