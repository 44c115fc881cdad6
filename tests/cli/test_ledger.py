"""`ledger` on the command line: a total for a data set, and what each run spent of it."""

from __future__ import annotations

import json
import math
import re
import shutil
import zipfile
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from adaptive_qs.answering.api import answer
from adaptive_qs.cli.entry import main
from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger import files, store
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Recovered, Row, find_last_sound
from adaptive_qs.levels import Grouping
from adaptive_qs.loop import loop
from adaptive_qs.machine import Fault
from adaptive_qs.privacy.accounting import compute_epsilon, compute_rho
from adaptive_qs.release.tables import ReleaseSet
from adaptive_qs.synthesizer import Synthesizer

from ..audit.recompute_ledger import ledger_problems
from .conftest import refused, working_in

LEDGER = ["--ledger", "l"]
TABLE = ["synthesize", "t.csv", "--schema", "s.json", *LEDGER]
SMALL = [*TABLE, "--rho", "0.01", "--release", "r.zip"]
ANSWERS = ["answer", *TABLE[1:], "--out", "a.csv"]


def done(outcome):
    said = [line for line in outcome.err.splitlines() if "independent of all others" not in line]
    assert (outcome.code, said) == (0, []), outcome
    return outcome.out


def ledger_of(run, verb, *more):
    return run("ledger", verb, *LEDGER, *more)


def shown(run, *more):
    return json.loads(done(ledger_of(run, "show", *more, "--json")))


@pytest.fixture
def ledger(run):
    done(ledger_of(run, "create", "--epsilon", 2, "--delta", "1e-6"))
    return Path("l")


def interrupted(run, monkeypatch):
    """A run that stops before its release is saved."""
    with monkeypatch.context() as context:
        context.setattr(ReleaseSet, "save", lambda *_: 1 / 0)
        outcome = run(*SMALL)
    assert outcome.code == 1
    assert "run 1 in l keeps what was paid for: --resume continues it" in outcome.err


def test_runs_are_listed_with_what_they_spent_and_the_rest_is_left(run, ledger):
    done(run(*TABLE, "--rho", "0.01", "--out", "o.csv"))
    done(run(*ANSWERS, "--rho", "0.02"))
    content = shown(run)
    table, answers = content["runs"]
    assert (table["command"], answers["command"]) == ("synthesize", "answer")
    assert {table["state"], answers["state"]} == {"finished"}
    assert 0.0099 < table["spent"]["rho"] <= 0.01  # choices take more of exact accounting
    assert answers["spent"]["rho"] == pytest.approx(0.02, rel=1e-12)
    assert table["gaussian_mu"] is None  # it also chose marginals
    assert answers["gaussian_mu"] == pytest.approx(math.sqrt(0.04), rel=1e-9)
    units = [content[part]["rho_units"] for part in ("total", "counted", "left")]
    assert units[0] == units[1] + units[2]
    expected = compute_epsilon(content["left"]["rho"], 1e-6)
    assert content["left"]["epsilon"] == pytest.approx(expected, rel=1e-12)
    assert "answer" in done(ledger_of(run, "show"))


def test_a_table_without_choices_has_no_mu_of_a_batch_and_a_total_in_rho_is_one(run):
    """What its noise spent may depend on what came before it; μ is of what was fixed."""
    column = {"name": "a", "type": "categorical", "values": ["x"]}
    Path("one.json").write_text(json.dumps({"version": 1, "columns": [column]}))
    Path("one.csv").write_text("a\n" + "x\n" * 9)
    done(ledger_of(run, "create", "--rho", repr(compute_rho(1.0, 1e-6)), "--delta", "1e-6"))
    assert run(*TABLE, *ONE, "--out", "o.csv").code == 3
    words = ["synthesize", "one.csv", "--schema", "one.json", *LEDGER, "--rho", "0.01"]
    assert run(*words, "--out", "o.csv").code == 0
    (only,) = shown(run)["runs"]
    assert (only["events"], only["gaussian_mu"]) == (2, None)


def stop(fault, drawn):
    """Fail at the third draw: the releases before it are committed."""
    if fault == Fault.CHARGED and next(drawn) == 2:
        raise ZeroDivisionError


ONE = ["--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def total_of_one(run):
    done(ledger_of(run, "create", *ONE))


@pytest.mark.parametrize("command", [[*TABLE, "--out", "o.csv", "--release", "r.zip"], ANSWERS])
def test_a_total_admits_one_run_of_its_epsilon_and_delta(run, total_of_one, command):
    """Which is then all that it is spent on, and shown at what it promised."""
    done(run(*command, *ONE))
    content = shown(run)
    assert content["total"]["rho"] < content["runs"][0]["reserved"]["rho"]
    assert content["counted"]["epsilon"] == content["runs"][0]["spent"]["epsilon"] == 1.0
    assert content["left"]["rho"] == 0
    assert ", epsilon 1 at delta 1e-06\n  left      rho 0 " in done(ledger_of(run, "show"))
    assert "EXCEEDED" not in done(ledger_of(run, "show"))
    outcome = run(*TABLE, "--rho", "1e-6", "--out", "p.csv")
    assert outcome.code == 3
    assert "The budget of this data set is used up" in outcome.err
    for release in command[-1:]:
        done(ledger_of(run, "verify", "--release", release))
    assert ledger_problems(json.loads(done(ledger_of(run, "export")))) == []


def test_a_run_that_is_all_of_a_total_comes_first_and_alone(run, total_of_one, monkeypatch):
    """Not behind another that released something, nor beside one; and nothing is given back."""
    with monkeypatch.context() as context:
        context.setattr("adaptive_qs.run.states.Mechanisms", lambda *_: 1 / 0)
        assert run(*TABLE, *ONE, "--out", "o.csv").code == 1
    assert [each["state"] for each in shown(run)["runs"]] == ["closed"]
    with monkeypatch.context() as context:
        drawn = count()
        context.setattr("adaptive_qs.machine._handlers", [lambda fault: stop(fault, drawn)])
        assert run(*TABLE, *ONE, "--out", "o.csv").code == 1
    assert shown(run)["left"]["rho"] == 0
    assert run(*TABLE, "--rho", "1e-6", "--out", "p.csv").code == 3
    done(ledger_of(run, "close", "--run", 2))
    content = shown(run)
    assert 0 < content["counted"]["rho"] < content["total"]["rho"]
    assert content["left"]["rho"] == 0
    assert run(*TABLE, "--rho", "1e-6", "--out", "p.csv").code == 3
    assert ledger_problems(json.loads(done(ledger_of(run, "export")))) == []


def test_one_run_of_several_is_shown_at_what_it_promised_and_all_at_their_sum(run, total_of_one):
    done(run(*TABLE, "--epsilon", "0.5", "--delta", "1e-6", "--out", "o.csv"))
    assert shown(run)["counted"]["epsilon"] == 0.5
    done(run(*ANSWERS, "--epsilon", "0.3", "--delta", "1e-7"))
    content = shown(run)
    each = [one["spent"]["epsilon"] for one in content["runs"]]
    assert each[0] == 0.5
    assert each[1] <= 0.3  # at the larger delta of the ledger
    spent = sum(one["spent"]["rho"] for one in content["runs"])
    assert content["counted"]["rho"] == pytest.approx(spent, rel=1e-12)
    assert content["counted"]["epsilon"] == pytest.approx(compute_epsilon(spent, 1e-6), rel=1e-9)
    assert run(*ANSWERS, *ONE, "--force").code == 3


@pytest.mark.parametrize("end", ["closed", "finished"])
def test_an_interrupted_run_is_closed_or_resumed_and_pays_nothing_twice(
    run, ledger, monkeypatch, end
):
    interrupted(run, monkeypatch)
    (before,) = shown(run)["runs"]
    assert before["state"] == "open"
    assert "--resume" in done(ledger_of(run, "show"))
    assert "Continue it with --resume" in refused(run(*SMALL))
    key = Path("l.key").read_bytes()
    Path("l.key").unlink()
    assert "key that recognises tables is missing" in refused(run(*SMALL, "--resume"))
    assert not Path("l.key").exists()
    Path("l.key").write_bytes(key)
    done(ledger_of(run, "close", "--run", 1) if end == "closed" else run(*SMALL, "--resume"))
    (after,) = shown(run)["runs"]
    assert (after["state"], after["spent"]) == (end, before["spent"])
    assert shown(run)["counted"] == after["spent"]
    if end == "closed":
        assert "no reserved budget to return" in refused(ledger_of(run, "close", "--run", 1))
        assert "no interrupted run" in refused(run(*SMALL, "--resume"))


def test_a_release_stands_in_its_ledger_and_in_no_other(run, ledger):
    done(run(*SMALL))
    done(run(*ANSWERS, "--rho", "0.02"))
    for name in ("r.zip", "a.csv.manifest.json"):
        assert f"{name} is recorded in it" in done(ledger_of(run, "verify", "--release", name))
    done(run("ledger", "create", "--ledger", "other", "--rho", 1))
    verify = ["ledger", "verify", "--ledger", "other", "--release", "r.zip"]
    assert "is not in this ledger" in refused(run(*verify))
    done(run("synthesize", "t.csv", "--schema", "s.json", "--rho", "0.01", "--release", "n.zip"))
    assert "without a ledger" in refused(ledger_of(run, "verify", "--release", "n.zip"))
    content = json.loads(Path("a.csv.manifest.json").read_text())
    content["ledger"]["releases"] += 1
    Path("a.csv.manifest.json").write_text(json.dumps(content))
    line = refused(ledger_of(run, "verify", "--release", "a.csv.manifest.json"))
    assert "its place in the ledger is another" in line


def test_a_resumed_run_replaces_what_it_wrote_before_and_nothing_else(run, ledger, monkeypatch):
    command = [*TABLE, "--rho", "0.01", "--out", "o.csv", "--release", "r.zip", "--seed", 3]
    with monkeypatch.context() as context:
        context.setattr("adaptive_qs.run.states.SpendingRun.finish", lambda *_: 1 / 0)
        assert run(*command).code == 1
    bundle, table = Path("r.zip").read_bytes(), Path("o.csv").read_bytes()
    Path("precious.csv").write_text("not to be lost")
    assert "Use --force" in refused(run(*command, "--resume", "--out", "precious.csv"))
    assert Path("precious.csv").read_text() == "not to be lost"
    done(run(*command, "--resume"))
    assert (Path("r.zip").read_bytes(), Path("o.csv").read_bytes()) == (bundle, table)
    # The run is over, so the files are like any others.
    assert "Use --force" in refused(run(*command, "--resume"))


def test_an_export_holds_the_whole_chain_and_neither_key_nor_answers(run, ledger, monkeypatch):
    interrupted(run, monkeypatch)
    done(ledger_of(run, "export", "--out", "x.json"))
    content = json.loads(Path("x.json").read_text())
    rows = [
        Row(e["number"], e["time"], e["body"], bytes.fromhex(e["hash"])) for e in content["entries"]
    ]
    assert find_last_sound(rows) == (len(rows), True)
    assert rows == list(LedgerBook(ledger).rows())
    text = Path("x.json").read_text()
    assert Path("l.key").read_text().strip() not in text
    assert json.loads(done(ledger_of(run, "export"))) == content
    assert "--force" in refused(ledger_of(run, "export", "--out", "x.json"))


@pytest.mark.parametrize("rho", ["0.123456789", "0.3333333333", "0.1499999999", "1.00000049e-3"])
def test_what_is_left_may_be_spent_as_it_is_shown(run, rho):
    """Whatever the sixth digit: it is rounded down, and the advice is what is shown."""
    done(ledger_of(run, "create", "--rho", rho))
    left = re.search(r"left +rho (\S+)", done(ledger_of(run, "show")))[1]
    assert 0 <= 1 - float(left) / float(rho) < 1e-5
    refused = run(*ANSWERS, "--rho", float(left) * (1 + 2e-5))
    assert f"has rho {left} left" in refused.err
    assert f"--rho {left} or less" in refused.err
    done(run(*ANSWERS, "--rho", left))


# Copies of a ledger that are put back: anchors show them, and what they lack is counted first.

ANCHOR = ["--anchor", "away/anchor"]
RESTORE_ANSWERS = ["answer", *TABLE[1:]]
FILES = ("l", "l.mark")


def backup(folder="copy"):
    Path(folder).mkdir()
    for name in FILES:
        shutil.copy(name, folder)


def put_back(folder="copy", files=FILES):
    """As the page on ledgers says: no log of the file that was replaced stays."""
    for name in (*files, "l-wal", "l-shm"):
        Path(name).unlink(missing_ok=True)
    for name in files:
        shutil.copy(f"{folder}/{name}", name)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A ledger with an anchor elsewhere, and a copy of it from before a table and answers."""
    with working_in(tmp_path_factory.mktemp("made")) as folder:
        Path("away").mkdir()
        assert main(["ledger", "create", *LEDGER, "--rho", "1", *ANCHOR]) == 0
        backup("made")
        shutil.copy("away/anchor", "made")
        assert main([*TABLE, "--rho", "0.25", "--release", "r.zip", "--out", "o.csv"]) == 0
        assert main([*RESTORE_ANSWERS, "--rho", "0.125", "--out", "a.csv"]) == 0
    return folder


@pytest.fixture
def restore_ledger(run, made):
    """The new ledger and its anchor."""
    put_back(made / "made")
    Path("away").mkdir()
    shutil.copy(made / "made" / "anchor", "away")


@pytest.fixture
def turned_back(run, made):
    """The same copy put back, with what was released since."""
    put_back(made / "made")
    for name in ("l.key", "r.zip", "o.csv", "o.csv.manifest.json", "a.csv", "a.csv.manifest.json"):
        shutil.copy(made / name, name)


def commands(more):
    return [
        [*TABLE, "--rho", "0.1", "--out", "x.csv", *more],
        [*RESTORE_ANSWERS, "--rho", "0.1", "--out", "x.csv", *more],
        ["ledger", "show", *LEDGER, *more],
        ["ledger", "verify", *LEDGER, *more],
        ["ledger", "export", *LEDGER, *more],
        ["ledger", "close", *LEDGER, "--run", 1, *more],
    ]


def test_an_anchor_refuses_a_copy_that_does_not_reach_it(run, restore_ledger):
    backup()
    done(run(*TABLE, "--rho", "0.25", "--out", "o.csv", *ANCHOR))
    reached = len(list(LedgerBook("l").rows()))
    put_back()
    for command in commands(ANCHOR):
        line = refused(run(*command))
        assert f"it lacks entry {reached}, which the anchor away/anchor has seen" in line
        assert "adaptive-qs ledger restore" in line
    assert not Path("x.csv").exists()
    for call in (
        lambda: Synthesizer(rho=0.1, ledger="l", anchor="away/anchor").fit(
            "t.csv", schema="s.json"
        ),
        lambda: answer("t.csv", "s.json", rho=0.1, ledger="l", anchor="away/anchor"),
    ):
        with pytest.raises(LedgerError, match="ledger restore"):
            call()


def test_the_newest_entry_as_it_was_printed_does_the_same(run, restore_ledger):
    backup()
    finished = json.loads(done(run(*TABLE, "--rho", "0.25", "--out", "o.csv", "--json")))
    head = shown(run)["head"]
    assert finished["ledger"]["head"] == head
    assert f"head      {head}" in done(ledger_of(run, "show"))
    done(run(*RESTORE_ANSWERS, "--rho", "0.1", "--out", "a.csv", "--anchor", head))
    put_back()
    for command in commands(["--anchor", head]):
        assert "which the anchor has seen" in refused(run(*command))
    assert "went different ways before entry 1" in refused(
        ledger_of(run, "show", "--anchor", f"1:{'0' * 64}")
    )


def test_an_anchor_goes_forward_with_its_ledger_also_through_python(run, restore_ledger):
    heads = []
    for number in range(2):
        model = Synthesizer(rho=0.1, ledger="l", anchor="away/anchor")
        model.fit("t.csv", schema="s.json").save(f"{number}.zip")
        answers = answer("t.csv", "s.json", rho=0.1, ledger="l", anchor="away/anchor")
        answers.write(f"{number}.csv")
        heads.append(Path("away/anchor").read_bytes())
        backup(f"copy {number}")
    assert len(set(heads)) == 2
    put_back("copy 0")
    refused(ledger_of(run, "show", *ANCHOR))
    put_back("copy 1")
    assert len(shown(run, *ANCHOR)["runs"]) == 4


def test_an_anchor_is_ahead_of_whatever_anybody_sees(run, restore_ledger, monkeypatch):
    """It has each release before its outputs are handed out, and each file before its name."""
    seen = []

    def save(self, path, force=False):
        book = LedgerBook("l", "away/anchor")
        seen.append((book.reached, book.last().number))
        raise ZeroDivisionError

    monkeypatch.setattr(ReleaseSet, "save", save)
    assert run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR).code == 1
    ((reached, last),) = seen
    assert reached == last > 3


def test_a_release_that_was_committed_and_not_marked_is_marked_before_it_is_seen(
    run, restore_ledger, monkeypatch
):
    """The power goes between the two; the resumed run hands out what was committed."""
    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "_mark", lambda *_: None)
        patch.setattr(ReleaseSet, "save", lambda *_: 1 / 0)
        assert run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR).code == 1
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR, "--resume"))
    book = LedgerBook("l", "away/anchor")
    assert book.reached == book.last().number


def test_an_anchor_that_is_not_there_is_not_made_by_a_run(run, restore_ledger):
    shutil.rmtree("away")  # its volume is not mounted
    for command in commands(ANCHOR):
        assert "no such anchor: mount the volume" in refused(run(*command))
    assert not Path("away").exists()
    assert shown(run)["runs"] == []


def test_an_anchor_that_cannot_be_written_keeps_the_release_back(run, restore_ledger, monkeypatch):
    def fails(anchor, _):
        assert anchor.path.name == "anchor"
        raise LedgerError("away/anchor: cannot be written (no space left on device)")

    with monkeypatch.context() as patch:
        patch.setattr(files.Anchor, "advance", fails)
        outcome = run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR)
    assert outcome.code != 0
    assert "cannot be written" in outcome.err
    assert not Path("r.zip").exists()


def test_outputs_and_anchors_replace_no_file_of_the_ledger_and_anchors_no_other(
    run, restore_ledger
):
    for companion in ("l", "l.key", "l.mark", "l-wal", "away/anchor"):
        command = [*TABLE, "--rho", "0.01", "--release", companion, "--force", *ANCHOR]
        assert "is also an input" in refused(run(*command))
    before = Path("t.csv").read_bytes()
    for anchor, hint in (("t.csv", "is damaged, or no anchor"), ("away", "is a directory")):
        for command in [*commands(["--anchor", anchor]), ["ledger", "restore", *LEDGER, "--none"]]:
            again = [*command, "--anchor", anchor] if command[1] == "restore" else command
            assert hint in refused(run(*again))
    assert Path("t.csv").read_bytes() == before


def test_an_anchor_is_made_once_and_of_a_ledger_that_is_sound(run, folder):
    done(ledger_of(run, "create", "--rho", 1))
    assert "No anchor is set" in refused(ledger_of(run, "anchor"))
    done(ledger_of(run, "anchor", "--anchor", "anchor"))
    assert "exists already" in refused(ledger_of(run, "anchor", "--anchor", "anchor"))
    assert "another output" in refused(ledger_of(run, "anchor", "--anchor", "l.mark"))
    backup()
    done(run(*TABLE, "--rho", "0.25", "--out", "o.csv", "--anchor", "anchor"))
    put_back()
    refused(ledger_of(run, "show", "--anchor", "anchor"))
    no_ledger = ["synthesize", "t.csv", "--schema", "s.json", "--rho", 1, "--out", "x.csv"]
    assert "--anchor needs --ledger" in refused(run(*no_ledger, "--anchor", "anchor"))


def test_a_copy_that_was_put_back_is_locked_until_its_owner_says_what_it_lacks(run, turned_back):
    said = done(ledger_of(run, "restore", "--lock"))
    assert "is now locked. State what was released since" in said
    for command in commands([])[:2]:
        line = refused(run(*command))
        assert "releases since it was made are not" in line
        assert "adaptive-qs ledger restore" in line
    with pytest.raises(LedgerError, match="is a restored copy"):
        Synthesizer(rho=0.1, ledger="l").fit("t.csv", schema="s.json")
    with pytest.raises(LedgerError, match="is a restored copy"):
        answer("t.csv", "s.json", rho=0.1, ledger="l")
    assert shown(run)["locked"] is True
    assert "LOCKED" in done(ledger_of(run, "show"))
    done(ledger_of(run, "restore", "--none"))
    assert shown(run)["locked"] is False
    done(run(*TABLE, "--rho", "0.1", "--out", "x.csv"))
    done(ledger_of(run, "verify"))


@pytest.mark.parametrize("anchor", [[], ["--anchor", "away"]])
def test_a_ledger_that_lacks_nothing_is_not_locked_by_a_command_without_options(
    run, ledger, anchor
):
    if anchor:
        done(ledger_of(run, "anchor", *anchor))
    before = shown(run)
    line = refused(ledger_of(run, "restore", *anchor))
    assert "--release for each file" in line
    assert "--lock" in line
    for words in (["--none"], ["--rho", "0.1"]):
        assert "Use one of them" in refused(ledger_of(run, "restore", "--lock", *words))
    assert shown(run) == before
    done(run(*TABLE, "--rho", "0.01", "--out", "o.csv", *anchor))


@pytest.mark.parametrize("names", [("r.zip", "a.csv"), ("o.csv.manifest.json", "a.csv")])
def test_what_was_released_since_the_copy_is_counted_once(run, turned_back, names):
    """Ledger and mark of one copy would let a budget be spent twice: nothing is known of it."""
    spent = 0.375
    assert shown(run)["counted"]["rho"] == 0
    given = [word for name in names for word in ("--release", name)]
    out = done(ledger_of(run, "restore", *given, "--release", "o.csv"))
    assert "counted 2 lost releases" in out
    content = shown(run)
    assert spent * 0.99 < content["counted"]["rho"] <= spent
    assert content["restored"][0]["releases"] == [1, 2]
    assert "counted 0 lost releases" in done(ledger_of(run, "restore", *given))
    assert shown(run)["counted"] == content["counted"]
    for name in names:
        assert f"{name} is recorded in it" in done(ledger_of(run, "verify", "--release", name))
    assert run(*TABLE, "--rho", "0.7", "--out", "x.csv").code == 3
    done(run(*TABLE, "--rho", "0.6", "--out", "x.csv"))
    assert shown(run)["runs"][-1]["run"] == 3, "numbers of lost runs are not given twice"
    done(ledger_of(run, "verify"))


def test_a_forged_copy_of_a_lost_release_is_found_after_it_was_counted(run, turned_back):
    done(ledger_of(run, "restore", "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["record.json"] += b" "
    with zipfile.ZipFile("r.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    line = refused(ledger_of(run, "verify", "--release", "r.zip"))
    assert "record.json differs" in line


def test_what_no_file_tells_is_counted_as_it_is_stated(run, turned_back):
    done(ledger_of(run, "restore", "--rho", "0.75", "--discovery-delta", "1e-12"))
    content = shown(run)
    assert content["left"]["rho"] == 0.25
    assert content["left"]["discovery_delta"] == 0
    assert content["counted"]["discovery_delta"] >= 1e-12
    assert "EXCEEDED" in done(ledger_of(run, "show"))
    done(ledger_of(run, "verify"))
    done(ledger_of(run, "restore", "--rho", "0.5"))
    assert shown(run)["left"]["rho"] == 0
    assert run(*TABLE, "--rho", "0.001", "--out", "x.csv").code == 3


def test_a_run_that_the_copy_has_open_is_closed_where_it_was_finished_since(
    run, restore_ledger, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseSet, "save", lambda *_: 1 / 0)
        assert run(*TABLE, "--rho", "0.25", "--release", "r.zip").code == 1
    backup()  # while the run was at work: the copy has some of its releases
    entries = shown(run)["head"]
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", "--resume"))
    put_back()
    assert shown(run)["head"] == entries
    done(ledger_of(run, "restore", "--release", "r.zip"))
    content = shown(run)
    assert content["counted"]["rho"] == pytest.approx(0.25, rel=1e-6)
    done(ledger_of(run, "verify", "--release", "r.zip"))


def test_a_copy_that_is_behind_its_mark_or_its_anchor_is_taken_by_restore_alone(
    run, restore_ledger
):
    backup()
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR))
    put_back(files=("l",))
    for command in commands([]):
        line = refused(run(*command))
        assert "which its mark has seen" in line
        assert "adaptive-qs ledger restore" in line
    done(ledger_of(run, "restore", "--release", "r.zip"))
    assert 0.2475 < shown(run)["counted"]["rho"] <= 0.25
    assert "the anchor away/anchor has seen" in refused(ledger_of(run, "show", *ANCHOR))
    done(ledger_of(run, "restore", "--release", "r.zip", *ANCHOR))
    done(run(*TABLE, "--rho", "0.25", "--out", "x.csv", *ANCHOR))
    assert 0.495 < shown(run, *ANCHOR)["counted"]["rho"] <= 0.5


@pytest.mark.parametrize("locked_first", [False, True])
def test_nothing_is_not_said_lightly_of_entries_that_are_known_to_be_lost(
    run, restore_ledger, locked_first
):
    """Otherwise their budget could be spent again against the anchor's evidence."""
    backup()
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR))
    lost = LedgerBook("l").verify() - 1
    put_back()
    if locked_first:  # mark and anchor begin anew, and the entry keeps what they told
        done(ledger_of(run, "restore", *ANCHOR))
    for words in (["--none"], ["--none", "--missing", "1"], ["--none", "--missing", lost + 1]):
        line = refused(ledger_of(run, "restore", *words, *ANCHOR))
        assert f"is known to lack {lost} entries" in line
    assert "--missing needs --none" in refused(ledger_of(run, "restore", "--missing", lost))
    done(ledger_of(run, "restore", "--none", "--missing", lost, *ANCHOR))
    assert f"nothing else of {lost} lost entries" in done(ledger_of(run, "show"))
    assert shown(run)["restored"][-1]["missing"] == lost
    done(run(*TABLE, "--rho", "0.25", "--out", "x.csv", *ANCHOR))


@pytest.mark.parametrize("own", ["l", "l.mark", "l.key", "./l.mark"])
def test_an_anchor_is_no_file_of_the_ledger_itself(run, restore_ledger, own):
    for command in commands(["--anchor", own]):
        assert "belongs to the ledger itself" in refused(run(*command))
    with pytest.raises(LedgerError, match="belongs to the ledger itself"):
        Synthesizer(rho=0.1, ledger="l", anchor=own).fit("t.csv", schema="s.json")


def test_a_lost_mark_is_made_anew_and_a_damaged_ledger_is_not_restored(run, turned_back):
    Path("l.mark").unlink()
    assert "adaptive-qs ledger restore" in refused(ledger_of(run, "show"))
    done(ledger_of(run, "restore"))
    assert shown(run)["locked"] is True
    content = bytearray(Path("l").read_bytes())
    at = content.rindex(b'"kind":"opened"')
    content[at + 10] ^= 1
    Path("l").write_bytes(content)
    assert "put back a copy of the ledger" in refused(ledger_of(run, "restore", "--none"))


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--none", "--rho", "0.1"], "--none cannot be combined"),
        (["--none", "--release", "r.zip"], "--none cannot be combined"),
        (["--rho", "-1"], "rho"),
        (["--rho", "nan"], "rho"),
        (["--discovery-delta", "2"], "discovery-delta is 2.0. Use a number from 0"),
        (["--release", "free.zip"], "without a ledger: count what it cost with --rho"),
        (["--release", "foreign.zip"], "belongs to another ledger"),
        (["--release", "s.json"], "neither a release bundle nor"),
        (["--release", "none.zip"], "no such file"),
    ],
)
def test_what_does_not_count_leaves_the_ledger_as_it_is(run, turned_back, options, hint):
    free = ["synthesize", "t.csv", "--schema", "s.json", "--rho", "0.1", "--release"]
    if "free.zip" in options:
        done(run(*free, "free.zip"))
    if "foreign.zip" in options:
        done(run("ledger", "create", "--ledger", "m", "--rho", 1))
        done(run(*free, "foreign.zip", "--ledger", "m"))
    before = [Path(name).read_bytes() for name in FILES]
    assert hint in refused(ledger_of(run, "restore", *options))
    assert [Path(name).read_bytes() for name in FILES] == before


def test_a_run_at_work_is_not_closed_under_it(run, restore_ledger):
    model = Synthesizer(rho=0.25, ledger="l").fit("t.csv", schema="s.json")
    model.release_.save("r.zip")
    backup()
    assert "has seen" not in done(ledger_of(run, "show"))
    book = LedgerBook("l", restoring=True)
    (row,) = [r for r in book.runs() if r.state == "open"]
    lost = Recovered(run=row.number, releases=99, hash="0" * 64, price=row.spent, digests={})
    with pytest.raises(LedgerError, match="a process works on"):
        book.restore([lost], row.spent - row.spent, confirmed=True)
    book.close()
    model.save("s.zip")


def _one_code_later(with_levels):
    """Groups of codes that are as many and as large, but other ones."""

    def shifted(*given):
        domain = with_levels(*given)
        groupings = tuple(
            Grouping(each.attribute, (each.groups[0], *each.groups[:-1]))
            for each in domain.groupings
        )
        assert groupings
        return replace(domain, groupings=groupings)

    return shifted


@pytest.mark.slow
def test_a_resumed_run_does_not_take_noise_of_other_groups_of_codes(run, monkeypatch):
    """Its charges would be the same: only what the ledger keeps beside them tells the groups."""
    centers = np.random.default_rng(0).normal(0.5, 0.15, (2_000, 1))
    values = centers + np.random.default_rng(1).normal(0, 0.05, (2_000, 3))
    lines = [",".join(map(str, row)) for row in (values.clip(0, 0.99) * 100).astype(int).tolist()]
    Path("t.csv").write_text("\n".join(["x,y,z", *lines, ""]))
    columns = [{"name": n, "type": "integer", "min": 0, "max": 99} for n in "xyz"]
    Path("s.json").write_text(json.dumps({"version": 1, "columns": columns}))
    done(ledger_of(run, "create", "--rho", "1"))
    command = [*TABLE, "--rho", "0.02", "--release", "r.zip", "--insecure-seed", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseSet, "save", lambda *_: (_ for _ in ()).throw(OSError(5, "failed")))
        assert run(*command).code != 0
    with monkeypatch.context() as patch:
        patch.setattr(loop, "with_levels", _one_code_later(loop.with_levels))
        line = run(*command, "--resume").err.splitlines()[-1]
        assert "run 1 released something else at this place" in line
    assert run(*command, "--resume").code == 0
    found = ReleaseSet.load("r.zip").root
    assert any(past.groups and max(past.groups) < 100 for past in found.rounds)
    assert [past.state for past in LedgerBook(Path("l")).runs()] == ["finished"]
