"""`ledger` on the command line: a total for a data set, and what each run spent of it."""

import json
import math
import re
from pathlib import Path

import pytest

from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.chain import Row, last_sound
from adaptive_qs.privacy.accounting import epsilon_of, rho_of
from adaptive_qs.release.release import Release

LEDGER = ["--ledger", "l"]
TABLE = ["synthesize", "t.csv", "--schema", "s.json", *LEDGER]
ANSWERS = ["answer", "t.csv", "--schema", "s.json", "--out", "a.csv", *LEDGER]


def done(outcome):
    said = [line for line in outcome.err.splitlines() if "independent of all others" not in line]
    assert (outcome.code, said) == (0, []), outcome
    return outcome.out


def shown(run):
    return json.loads(done(run("ledger", "show", *LEDGER, "--json")))


@pytest.fixture
def ledger(run):
    done(run("ledger", "create", *LEDGER, "--epsilon", 2, "--delta", "1e-6"))
    return Path("l")


def interrupted(run, monkeypatch):
    """A run that stops before its release is saved."""
    with monkeypatch.context() as context:
        context.setattr(Release, "save", lambda *_: 1 / 0)
        outcome = run(*TABLE, "--rho", "0.01", "--release", "r.zip")
    assert outcome.code == 1
    assert "run 1 in l keeps what was paid for: --resume continues it" in outcome.err


def test_the_total_is_that_of_its_epsilon_and_delta(run, ledger):
    total = shown(run)["total"]
    assert total["rho"] == rho_of(2.0, 1e-6)
    assert total["epsilon"] == pytest.approx(2.0, rel=1e-9)
    assert shown(run)["declared"] == {"epsilon": 2.0, "delta": 1e-6}


def test_discovery_takes_its_share_of_delta_first(run):
    done(run("ledger", "create", *LEDGER, "--epsilon", 2, "--discovery-delta", "4e-10"))
    total = shown(run)["total"]
    assert total["discovery_delta"] == pytest.approx(4e-10, rel=1e-12)
    assert total["rho"] == pytest.approx(rho_of(2.0, 6e-10), rel=1e-9)
    assert total["rho"] < rho_of(2.0, 1e-9)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ([], "neither --epsilon nor --rho were given"),
        (["--epsilon", 1, "--rho", 1], "both --epsilon and --rho were given"),
        (["--epsilon", 1, "--discovery-delta", "1e-9"], "a part of delta 1e-09"),
        (["--rho", "1e-30"], "below 2**-60 rho"),
    ],
)
def test_totals_that_mean_nothing_are_refused(run, options, hint):
    outcome = run("ledger", "create", *LEDGER, *options)
    assert outcome.code == 2
    assert hint in outcome.err
    assert not Path("l").exists()


def test_a_total_is_set_once(run, ledger):
    before = ledger.read_bytes()
    outcome = run("ledger", "create", *LEDGER, "--rho", 5)
    assert outcome.code == 2
    assert "a total is set once" in outcome.err
    assert ledger.read_bytes() == before


def test_runs_are_listed_with_what_they_spent_and_the_rest_is_left(run, ledger):
    done(run(*TABLE, "--rho", "0.01", "--out", "o.csv"))
    done(run(*ANSWERS, "--rho", "0.02"))
    content = shown(run)
    table, answers = content["runs"]
    assert (table["command"], answers["command"]) == ("synthesize", "answer")
    assert {table["state"], answers["state"]} == {"finished"}
    assert table["spent"]["rho"] == pytest.approx(0.01, rel=1e-6)
    assert answers["spent"]["rho"] == pytest.approx(0.02, rel=1e-12)
    assert table["gaussian_mu"] is None  # it also chose marginals
    assert answers["gaussian_mu"] == pytest.approx(math.sqrt(0.04), rel=1e-9)
    units = [content[part]["rho_units"] for part in ("total", "counted", "left")]
    assert units[0] == units[1] + units[2]
    expected = epsilon_of(content["left"]["rho"], 1e-6)
    assert content["left"]["epsilon"] == pytest.approx(expected, rel=1e-12)
    assert "answer" in done(run("ledger", "show", *LEDGER))


def test_what_the_total_does_not_allow_is_refused_before_a_draw(run, ledger, monkeypatch):
    monkeypatch.setattr("adaptive_qs.synthesizer.job.Mechanisms", None)
    outcome = run(*TABLE, "--epsilon", 3, "--delta", "1e-6", "--out", "o.csv")
    assert outcome.code == 3
    assert "give the run --rho 0.0" in outcome.err
    assert shown(run)["runs"] == []
    assert not Path("o.csv").exists()


def test_an_interrupted_run_is_shown_closed_and_gives_back_what_it_did_not_spend(
    run, ledger, monkeypatch
):
    interrupted(run, monkeypatch)
    (before,) = shown(run)["runs"]
    assert before["state"] == "open"
    assert "--resume" in done(run("ledger", "show", *LEDGER))
    done(run("ledger", "close", *LEDGER, "--run", 1))
    (after,) = shown(run)["runs"]
    assert after["state"] == "closed"
    assert shown(run)["counted"] == after["spent"]
    again = run("ledger", "close", *LEDGER, "--run", 1)
    assert (again.code, "nothing is left to give back" in again.err) == (2, True)
    resumed = run(*TABLE, "--rho", "0.01", "--release", "r.zip", "--resume")
    assert (resumed.code, "no interrupted run" in resumed.err) == (2, True)


def test_an_interrupted_run_is_resumed_and_pays_nothing_twice(run, ledger, monkeypatch):
    interrupted(run, monkeypatch)
    spent = shown(run)["runs"][0]["spent"]
    done(run(*TABLE, "--rho", "0.01", "--release", "r.zip", "--resume"))
    (after,) = shown(run)["runs"]
    assert (after["state"], after["spent"]) == ("finished", spent)


@pytest.mark.parametrize("number", [2, 10**30])
def test_a_run_that_is_not_there_is_not_closed(run, ledger, number):
    outcome = run("ledger", "close", *LEDGER, "--run", number)
    assert outcome.code == 2
    assert "ledger show" in outcome.err or "Invalid value" in outcome.err


def test_a_release_stands_in_its_ledger_and_in_no_other(run, ledger):
    done(run(*TABLE, "--rho", "0.01", "--release", "r.zip"))
    assert "r.zip stands in it" in done(run("ledger", "verify", *LEDGER, "--release", "r.zip"))
    done(run("ledger", "create", "--ledger", "other", "--rho", 1))
    outcome = run("ledger", "verify", "--ledger", "other", "--release", "r.zip")
    assert (outcome.code, "is not in this ledger" in outcome.err) == (2, True)
    done(run("synthesize", "t.csv", "--schema", "s.json", "--rho", "0.01", "--release", "n.zip"))
    outcome = run("ledger", "verify", *LEDGER, "--release", "n.zip")
    assert (outcome.code, "without a ledger" in outcome.err) == (2, True)


def test_answers_and_tables_stand_in_their_ledger_by_the_manifest_beside_them(run, ledger):
    done(run(*ANSWERS, "--rho", "0.02"))
    done(run(*TABLE, "--rho", "0.01", "--out", "o.csv"))
    for name in ("a.csv.manifest.json", "o.csv.manifest.json"):
        assert f"{name} stands in it" in done(run("ledger", "verify", *LEDGER, "--release", name))
    content = json.loads(Path("a.csv.manifest.json").read_text())
    content["ledger"]["releases"] += 1
    Path("a.csv.manifest.json").write_text(json.dumps(content))
    outcome = run("ledger", "verify", *LEDGER, "--release", "a.csv.manifest.json")
    assert (outcome.code, "its place in the ledger is another" in outcome.err) == (2, True)
    outcome = run("ledger", "verify", *LEDGER, "--release", "s.json")
    assert (outcome.code, "neither a release bundle nor" in outcome.err) == (2, True)


def test_the_same_again_is_not_paid_while_a_run_of_it_is_interrupted(run, ledger, monkeypatch):
    interrupted(run, monkeypatch)
    again = run(*TABLE, "--rho", "0.01", "--release", "r.zip")
    assert (again.code, "continue it with --resume" in again.err) == (2, True)
    done(run(*TABLE, "--rho", "0.02", "--release", "other.zip"))
    assert len(shown(run)["runs"]) == 2


def test_a_resumed_run_replaces_what_it_wrote_before_and_nothing_else(run, ledger, monkeypatch):
    command = [*TABLE, "--rho", "0.01", "--out", "o.csv", "--release", "r.zip", "--seed", 3]
    with monkeypatch.context() as context:
        context.setattr("adaptive_qs.ledger.session.Session.finish", lambda *_: 1 / 0)
        assert run(*command).code == 1
    bundle, table = Path("r.zip").read_bytes(), Path("o.csv").read_bytes()
    Path("precious.csv").write_text("not to be lost")
    outcome = run(*command, "--resume", "--out", "precious.csv")
    assert (outcome.code, "add --force" in outcome.err) == (2, True)
    assert Path("precious.csv").read_text() == "not to be lost"
    done(run(*command, "--resume"))
    assert (Path("r.zip").read_bytes(), Path("o.csv").read_bytes()) == (bundle, table)
    outcome = run(*command, "--resume")  # the run is over, so the files are like any others
    assert (outcome.code, "add --force" in outcome.err) == (2, True)


def test_a_name_that_is_too_long_is_refused_when_resuming_too(run, ledger):
    outcome = run(*TABLE, "--rho", "0.01", "--resume", "--out", "x" * 300 + ".csv")
    assert (outcome.code, "name too long" in outcome.err) == (2, True), outcome


def test_a_finished_run_says_what_is_left(run, ledger):
    content = json.loads(done(run(*TABLE, "--rho", "0.01", "--out", "o.csv", "--json")))
    assert content["ledger"]["run"] == 1
    assert content["ledger"]["rho_left"] == shown(run)["left"]["rho"]
    assert "run 2 is finished; rho 0." in done(run(*ANSWERS, "--rho", "0.02"))


@pytest.mark.parametrize("companion", ["l", "l.key", "l.mark", "l-wal"])
def test_outputs_do_not_replace_what_belongs_to_the_ledger(run, ledger, companion):
    outcome = run(*TABLE, "--rho", "0.01", "--release", companion, "--force")
    assert (outcome.code, "is also an input" in outcome.err) == (2, True)


def test_nobody_resumes_without_the_key(run, ledger, monkeypatch):
    interrupted(run, monkeypatch)
    Path("l.key").unlink()
    outcome = run(*TABLE, "--rho", "0.01", "--release", "r.zip", "--resume")
    assert (outcome.code, "key that recognises tables is missing" in outcome.err) == (2, True)
    assert not Path("l.key").exists()


def test_an_export_holds_the_whole_chain_and_neither_key_nor_answers(run, ledger, monkeypatch):
    interrupted(run, monkeypatch)
    done(run("ledger", "export", *LEDGER, "--out", "x.json"))
    content = json.loads(Path("x.json").read_text())
    rows = [
        Row(e["number"], e["time"], e["body"], bytes.fromhex(e["hash"])) for e in content["entries"]
    ]
    assert last_sound(rows) == (len(rows), True)
    assert rows == list(LedgerBook(ledger).rows())
    text = Path("x.json").read_text()
    assert Path("l.key").read_text().strip() not in text
    assert json.loads(done(run("ledger", "export", *LEDGER))) == content
    refused = run("ledger", "export", *LEDGER, "--out", "x.json")
    assert (refused.code, "--force" in refused.err) == (2, True)


@pytest.mark.parametrize("verb", ["create", "show", "verify", "export", "close"])
def test_a_ledger_must_be_named(run, verb):
    outcome = run("ledger", verb)
    assert (outcome.code, "no --ledger was given" in outcome.err) == (2, True)


def test_resuming_needs_a_ledger(run):
    outcome = run("synthesize", "t.csv", "--schema", "s.json", "--rho", 1, "--out", "o", "--resume")
    assert outcome.code == 2


@pytest.mark.parametrize("rho", ["0.123456789", "0.3333333333", "0.1499999999", "1.00000049e-3"])
def test_what_is_left_may_be_spent_as_it_is_shown(run, rho):
    """Whatever the sixth digit: it is rounded down, and the advice is what is shown."""
    done(run("ledger", "create", *LEDGER, "--rho", rho))
    left = re.search(r"left +rho (\S+)", done(run("ledger", "show", *LEDGER)))[1]
    assert 0 <= 1 - float(left) / float(rho) < 1e-5
    refused = run(*ANSWERS, "--rho", float(left) * (1 + 2e-5))
    assert f"exceeds the {left} that is left" in refused.err
    assert f"--rho {left} or less" in refused.err
    done(run(*ANSWERS, "--rho", left))
