"""Copies of a ledger that are put back: anchors show them, and what they lack is counted first."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from adaptive_qs import Synthesizer, answer
from adaptive_qs.cli import main
from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger import mark, store
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Price, Recovered
from adaptive_qs.release.release import Release

from .conftest import working_in

LEDGER = ["--ledger", "l"]
ANCHOR = ["--anchor", "away/anchor"]
TABLE = ["synthesize", "t.csv", "--schema", "s.json", *LEDGER]
ANSWERS = ["answer", "t.csv", "--schema", "s.json", *LEDGER]
FILES = ("l", "l.mark")


def done(outcome):
    said = [line for line in outcome.err.splitlines() if "independent of all others" not in line]
    assert (outcome.code, said) == (0, []), outcome
    return outcome.out


def refused(outcome):
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
    return outcome.err


def shown(run, *more):
    return json.loads(done(run("ledger", "show", *LEDGER, *more, "--json")))


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
        assert main([*ANSWERS, "--rho", "0.125", "--out", "a.csv"]) == 0
    return folder


@pytest.fixture
def ledger(run, made):
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
        [*ANSWERS, "--rho", "0.1", "--out", "x.csv", *more],
        ["ledger", "show", *LEDGER, *more],
        ["ledger", "verify", *LEDGER, *more],
        ["ledger", "export", *LEDGER, *more],
        ["ledger", "close", *LEDGER, "--run", 1, *more],
    ]


def test_ledger_and_mark_of_one_copy_let_a_budget_be_spent_twice(run, turned_back):
    """What the anchor is for, and why the page on privacy says so."""
    assert shown(run)["counted"]["rho"] == 0
    done(run(*TABLE, "--rho", "0.9", "--out", "x.csv"))


def test_an_anchor_refuses_a_copy_that_does_not_reach_it(run, ledger):
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


def test_the_newest_entry_as_it_was_printed_does_the_same(run, ledger):
    backup()
    finished = json.loads(done(run(*TABLE, "--rho", "0.25", "--out", "o.csv", "--json")))
    head = shown(run)["head"]
    assert finished["ledger"]["head"] == head
    assert f"head      {head}" in done(run("ledger", "show", *LEDGER))
    done(run(*ANSWERS, "--rho", "0.1", "--out", "a.csv", "--anchor", head))
    put_back()
    for command in commands(["--anchor", head]):
        assert "which the anchor has seen" in refused(run(*command))
    assert "went different ways before entry 1" in refused(
        run("ledger", "show", *LEDGER, "--anchor", f"1:{'0' * 64}")
    )


def test_an_anchor_goes_forward_with_its_ledger_also_through_python(run, ledger):
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
    refused(run("ledger", "show", *LEDGER, *ANCHOR))
    put_back("copy 1")
    assert len(shown(run, *ANCHOR)["runs"]) == 4


def test_an_anchor_is_ahead_of_whatever_anybody_sees(run, ledger, monkeypatch):
    """It has each release before its outputs are handed out, and each file before its name."""
    seen = []

    def save(self, path, force=False):
        book = LedgerBook("l", "away/anchor")
        seen.append((book._store.reached, book._store.last().number))
        raise ZeroDivisionError

    monkeypatch.setattr(Release, "save", save)
    assert run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR).code == 1
    ((reached, last),) = seen
    assert reached == last > 3


def test_a_release_that_was_committed_and_not_marked_is_marked_before_it_is_seen(
    run, ledger, monkeypatch
):
    """The power goes between the two; the resumed run hands out what was committed."""
    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "_mark", lambda *_: None)
        patch.setattr(Release, "save", lambda *_: 1 / 0)
        assert run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR).code == 1
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR, "--resume"))
    book = LedgerBook("l", "away/anchor")
    assert book._store.reached == book._store.last().number


def test_an_anchor_that_is_not_there_is_not_made_by_a_run(run, ledger):
    shutil.rmtree("away")  # its volume is not mounted
    for command in commands(ANCHOR):
        assert "no such anchor: mount the volume" in refused(run(*command))
    assert not Path("away").exists()
    assert shown(run)["runs"] == []


def test_an_anchor_that_cannot_be_written_keeps_the_release_back(run, ledger, monkeypatch):
    def fails(path, _):
        if Path(path).name == "anchor":
            raise LedgerError("away/anchor: cannot be written (no space left on device)")

    with monkeypatch.context() as patch:
        patch.setattr(mark, "advance_mark", fails)
        outcome = run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR)
    assert outcome.code != 0
    assert "cannot be written" in outcome.err
    assert not Path("r.zip").exists()


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        (["--anchor", "t.csv"], "is damaged, or no anchor"),
        (["--anchor", "away"], "is a directory"),
    ],
)
def test_files_that_are_no_anchors_are_refused_and_stay(run, ledger, more, hint):
    before = Path("t.csv").read_bytes()
    for command in commands(more):
        refused(run(*command))
    assert hint in refused(run("ledger", "show", *LEDGER, *more))
    assert Path("t.csv").read_bytes() == before


def test_an_anchor_is_made_once_and_of_a_ledger_that_is_sound(run, folder):
    done(run("ledger", "create", *LEDGER, "--rho", 1))
    assert "no --anchor was given" in refused(run("ledger", "anchor", *LEDGER))
    done(run("ledger", "anchor", *LEDGER, "--anchor", "anchor"))
    assert "exists already" in refused(run("ledger", "anchor", *LEDGER, "--anchor", "anchor"))
    assert "another output" in refused(run("ledger", "anchor", *LEDGER, "--anchor", "l.mark"))
    backup()
    done(run(*TABLE, "--rho", "0.25", "--out", "o.csv", "--anchor", "anchor"))
    put_back()
    refused(run("ledger", "show", *LEDGER, "--anchor", "anchor"))
    no_ledger = ["synthesize", "t.csv", "--schema", "s.json", "--rho", 1, "--out", "x.csv"]
    assert "without a ledger" in refused(run(*no_ledger, "--anchor", "anchor"))


def test_outputs_do_not_replace_the_anchor(run, ledger):
    command = [*TABLE, "--rho", "0.01", "--release", "away/anchor", "--force", *ANCHOR]
    assert "is also an input" in refused(run(*command))


def test_a_copy_that_was_put_back_is_locked_until_its_owner_says_what_it_lacks(run, turned_back):
    assert "locked: say what was released since" in done(run("ledger", "restore", *LEDGER))
    for command in commands([])[:2]:
        line = refused(run(*command))
        assert "nobody has said what was released since" in line
        assert "adaptive-qs ledger restore" in line
    with pytest.raises(LedgerError, match="nobody has said"):
        Synthesizer(rho=0.1, ledger="l").fit("t.csv", schema="s.json")
    with pytest.raises(LedgerError, match="nobody has said"):
        answer("t.csv", "s.json", rho=0.1, ledger="l")
    assert shown(run)["locked"] is True
    assert "LOCKED" in done(run("ledger", "show", *LEDGER))
    done(run("ledger", "restore", *LEDGER, "--none"))
    assert shown(run)["locked"] is False
    done(run(*TABLE, "--rho", "0.1", "--out", "x.csv"))
    done(run("ledger", "verify", *LEDGER))


@pytest.mark.parametrize("names", [("r.zip", "a.csv"), ("o.csv.manifest.json", "a.csv")])
def test_what_was_released_since_the_copy_is_counted_once(run, turned_back, names):
    spent = 0.375
    given = [word for name in names for word in ("--release", name)]
    out = done(run("ledger", "restore", *LEDGER, *given, "--release", "o.csv"))
    assert "counted: 2 lost releases" in out
    content = shown(run)
    assert content["counted"]["rho"] == pytest.approx(spent, rel=1e-6)
    assert content["restored"][0]["releases"] == [1, 2]
    assert "counted: 0 lost releases" in done(run("ledger", "restore", *LEDGER, *given))
    assert shown(run)["counted"] == content["counted"]
    for name in names:
        assert f"{name} stands in it" in done(run("ledger", "verify", *LEDGER, "--release", name))
    assert run(*TABLE, "--rho", "0.7", "--out", "x.csv").code == 3
    done(run(*TABLE, "--rho", "0.6", "--out", "x.csv"))
    assert shown(run)["runs"][-1]["run"] == 3, "numbers of lost runs are not given twice"
    done(run("ledger", "verify", *LEDGER))


def test_a_forged_copy_of_a_lost_release_is_found_after_it_was_counted(run, turned_back):
    done(run("ledger", "restore", *LEDGER, "--release", "r.zip"))
    with zipfile.ZipFile("r.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["record.json"] += b" "
    with zipfile.ZipFile("r.zip", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    line = refused(run("ledger", "verify", *LEDGER, "--release", "r.zip"))
    assert "record.json differs" in line


def test_releases_that_the_copy_has_are_not_counted_again(run, ledger):
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip"))
    before = shown(run)["counted"]
    backup()
    put_back()
    done(run("ledger", "restore", *LEDGER, "--release", "r.zip"))
    assert shown(run)["counted"] == before


def test_what_no_file_tells_is_counted_as_it_is_stated(run, turned_back):
    done(run("ledger", "restore", *LEDGER, "--rho", "0.75", "--discovery-delta", "1e-12"))
    content = shown(run)
    assert content["left"]["rho"] == 0.25
    assert content["left"]["discovery_delta"] == 0
    assert content["counted"]["discovery_delta"] >= 1e-12
    assert "EXCEEDED" in done(run("ledger", "show", *LEDGER))
    done(run("ledger", "verify", *LEDGER))
    done(run("ledger", "restore", *LEDGER, "--rho", "0.5"))
    assert shown(run)["left"]["rho"] == 0
    assert run(*TABLE, "--rho", "0.001", "--out", "x.csv").code == 3


def test_a_run_that_the_copy_has_open_is_closed_where_it_was_finished_since(
    run, ledger, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Release, "save", lambda *_: 1 / 0)
        assert run(*TABLE, "--rho", "0.25", "--release", "r.zip").code == 1
    backup()  # while the run was at work: the copy has some of its releases
    entries = shown(run)["head"]
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", "--resume"))
    put_back()
    assert shown(run)["head"] == entries
    done(run("ledger", "restore", *LEDGER, "--release", "r.zip"))
    content = shown(run)
    assert content["counted"]["rho"] == pytest.approx(0.25, rel=1e-6)
    done(run("ledger", "verify", *LEDGER, "--release", "r.zip"))


def test_a_copy_that_is_behind_its_mark_or_its_anchor_is_taken_by_restore_alone(run, ledger):
    backup()
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR))
    put_back(files=("l",))
    for command in commands([]):
        line = refused(run(*command))
        assert "which its mark has seen" in line
        assert "adaptive-qs ledger restore" in line
    done(run("ledger", "restore", *LEDGER, "--release", "r.zip"))
    assert shown(run)["counted"]["rho"] == pytest.approx(0.25, rel=1e-6)
    assert "the anchor away/anchor has seen" in refused(run("ledger", "show", *LEDGER, *ANCHOR))
    done(run("ledger", "restore", *LEDGER, "--release", "r.zip", *ANCHOR))
    done(run(*TABLE, "--rho", "0.25", "--out", "x.csv", *ANCHOR))
    assert shown(run, *ANCHOR)["counted"]["rho"] == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("locked_first", [False, True])
def test_nothing_is_not_said_lightly_of_entries_that_are_known_to_be_lost(
    run, ledger, locked_first
):
    """Otherwise their budget could be spent again against the anchor's evidence."""
    backup()
    done(run(*TABLE, "--rho", "0.25", "--release", "r.zip", *ANCHOR))
    lost = LedgerBook("l").verify() - 1
    put_back()
    if locked_first:  # mark and anchor begin anew, and the entry keeps what they told
        done(run("ledger", "restore", *LEDGER, *ANCHOR))
    for words in (["--none"], ["--none", "--missing", "1"], ["--none", "--missing", lost + 1]):
        line = refused(run("ledger", "restore", *LEDGER, *words, *ANCHOR))
        assert f"is known to lack {lost} entries" in line
    assert "without --none" in refused(run("ledger", "restore", *LEDGER, "--missing", lost))
    done(run("ledger", "restore", *LEDGER, "--none", "--missing", lost, *ANCHOR))
    assert f"nothing else of {lost} lost entries" in done(run("ledger", "show", *LEDGER))
    assert shown(run)["restored"][-1]["missing"] == lost
    done(run(*TABLE, "--rho", "0.25", "--out", "x.csv", *ANCHOR))


@pytest.mark.parametrize("own", ["l", "l.mark", "l.key", "./l.mark"])
def test_an_anchor_is_no_file_of_the_ledger_itself(run, ledger, own):
    for command in commands(["--anchor", own]):
        assert "belongs to the ledger itself" in refused(run(*command))
    with pytest.raises(LedgerError, match="belongs to the ledger itself"):
        Synthesizer(rho=0.1, ledger="l", anchor=own).fit("t.csv", schema="s.json")


def test_a_mark_that_is_lost_is_made_anew(run, turned_back):
    Path("l.mark").unlink()
    assert "adaptive-qs ledger restore" in refused(run("ledger", "show", *LEDGER))
    done(run("ledger", "restore", *LEDGER))
    assert shown(run)["locked"] is True


def test_a_damaged_ledger_is_not_restored_but_a_copy_of_it(run, turned_back):
    content = bytearray(Path("l").read_bytes())
    at = content.rindex(b'"kind":"opened"')
    content[at + 10] ^= 1
    Path("l").write_bytes(content)
    assert "put back a copy of the ledger" in refused(run("ledger", "restore", *LEDGER, "--none"))


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--none", "--rho", "0.1"], "--none was given together"),
        (["--none", "--release", "r.zip"], "--none was given together"),
        (["--rho", "-1"], "rho"),
        (["--rho", "nan"], "rho"),
        (["--discovery-delta", "2"], "--discovery-delta"),
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
    assert hint in refused(run("ledger", "restore", *LEDGER, *options))
    assert [Path(name).read_bytes() for name in FILES] == before


def test_a_run_at_work_is_not_closed_under_it(run, ledger):
    model = Synthesizer(rho=0.25, ledger="l").fit("t.csv", schema="s.json")
    model.release_.save("r.zip")
    backup()
    assert "has seen" not in done(run("ledger", "show", *LEDGER))
    book = LedgerBook("l", restoring=True)
    (row,) = [r for r in book.runs() if r.state == "open"]
    lost = Recovered(
        run=row.number, releases=99, hash="0" * 64, price=Price.of(row.spent), digests={}
    )
    with pytest.raises(LedgerError, match="being worked on"):
        book.restore([lost], row.spent - row.spent, confirmed=True)
    book.close()
    model.save("s.zip")


def test_no_other_file_is_replaced_by_an_anchor(run, ledger):
    before = Path("t.csv").read_bytes()
    line = refused(run("ledger", "restore", *LEDGER, "--none", "--anchor", "t.csv"))
    assert line.startswith("error: t.csv: is damaged, or no anchor")
    assert Path("t.csv").read_bytes() == before
