"""Damage of any kind to the file of a ledger is refused, or changes nothing."""

import random
import re
import sqlite3

import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.errors import LedgerError
from adaptive_qs.ledger import store
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import START, Released, chain_entry, find_last_sound
from adaptive_qs.ledger.files import mark_path

from .helpers import (
    INPUTS,
    REQUEST,
    copied,
    crash,
    execute,
    filled,
    new_book,
    refusal,
    released,
    reserve,
    rows_of,
)

TRIGGERS = re.findall(r"CREATE TRIGGER.*?END;", store._TABLES, re.DOTALL)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("sound") / "ledger")


@pytest.fixture
def ledger(sound, tmp_path):
    return copied(sound, tmp_path / "ledger")


def tamper(path, *statements):
    """Change entries, each by a statement and its values."""
    changed = execute(
        path,
        *((f"DROP TRIGGER {name}",) for name in ("no_change", "no_removal")),
        *statements,
        *((trigger,) for trigger in TRIGGERS),
    )
    assert changed[2:-2] == [1] * len(statements)


def test_the_chain_holds_only_as_a_whole(sound):
    rows = rows_of(sound)
    assert [row.number for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert find_last_sound(rows) == (7, True)
    for at in range(7):
        assert find_last_sound(rows[:at]) == (at, True)
        if at < 6:  # an end cut off shows only against the hash that a release states
            assert find_last_sound(rows[:at] + rows[at + 1 :]) == (at, False)
            swapped = [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]]
            assert find_last_sound(swapped) == (at, False)
        assert find_last_sound([*rows[: at + 1], *rows[at:]]) == (at + 1, False)


def test_a_field_cannot_pass_for_a_part_of_the_next():
    assert chain_entry(START, 1, "ab", "c").hash != chain_entry(START, 1, "a", "bc").hash
    assert chain_entry(START, 1, "1", "c").hash != chain_entry(START, 11, "", "c").hash


def test_any_change_of_a_byte_in_an_entry_is_refused(sound, ledger):
    rows = rows_of(sound)
    draw = random.Random(1)
    for row in rows:
        for column in ("number", "time", "body", "hash"):
            value = getattr(row, column)
            if column == "number":
                changed = value + 100
            elif column == "hash":
                at = draw.randrange(32)
                changed = value[:at] + bytes([value[at] ^ 1 << draw.randrange(8)]) + value[at + 1 :]
            else:
                at = draw.randrange(len(value))
                changed = value[:at] + ("x" if value[at] != "x" else "y") + value[at + 1 :]
            copied(sound, ledger)
            set_it = f"UPDATE entries SET {column} = ? WHERE number = ?"
            if column == "body":  # JSON that cannot be read any more is refused even earlier
                with_json = changed if _is_json(changed) else value.replace(":", ": ", 1)
                changed = with_json
            tamper(ledger, (set_it, (changed, row.number)))
            assert f"after entry {row.number - 1:,}, the last good one" in refusal(ledger)


def _is_json(text):
    return sqlite3.connect(":memory:").execute("SELECT json_valid(?)", (text,)).fetchone()[0]


@pytest.mark.parametrize("number", range(1, 7))
def test_an_entry_that_is_gone_is_refused(ledger, number):
    tamper(ledger, ("DELETE FROM entries WHERE number = ?", (number,)))
    assert f"after entry {number - 1}, the last good one" in refusal(ledger)


@pytest.mark.parametrize("number", range(1, 6))
def test_entries_that_changed_places_are_refused(ledger, number):
    move = "UPDATE entries SET number = ? WHERE number = ?"
    tamper(ledger, (move, (99, number)), (move, (number, number + 1)), (move, (number + 1, 99)))
    assert f"after entry {number - 1}, the last good one" in refusal(ledger)


@pytest.mark.parametrize("value", [None, 7, 2.5, b"2026"])
@pytest.mark.parametrize("column", ["time", "body", "hash"])
def test_values_of_other_types_are_refused(ledger, column, value):
    shown = "NULL" if value is None else "?"
    values = () if value is None else (value,)
    try:
        tamper(ledger, (f"UPDATE entries SET {column} = {shown} WHERE number = 3", values))
    except sqlite3.Error:
        return  # the database itself refuses it
    assert "last good one" in refusal(ledger)


def test_tables_that_are_not_those_of_a_ledger_are_refused(ledger):
    execute(ledger, ("DROP INDEX releases",))
    assert "damaged before its first entry" in refusal(ledger)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE outputs SET data = x'00' || substr(data, 2) || x'01' WHERE position = 0",
        "UPDATE outputs SET kind = 'choice' WHERE position = 0",
        "DELETE FROM outputs WHERE position = 1 AND part = 1",
        "UPDATE outputs SET part = 2 - part WHERE position = 1 AND part = 0",
    ],
)
def test_changed_outputs_are_never_handed_out(ledger, change):
    assert execute(ledger, (change,)) == [1]
    with pytest.raises(LedgerError, match=r"answers of entry [67] are damaged"):
        LedgerBook(ledger).verify()
    with pytest.raises(LedgerError, match=r"answers of entry [67] are damaged"):
        _outputs(ledger)


def test_damage_gives_one_line_and_exit_code_2(ledger, capsys):
    tamper(ledger, ("UPDATE entries SET time = '1970' WHERE number = ?", (4,)))
    for verb in ("show", "verify", "export"):
        assert main(["ledger", verb, "--ledger", str(ledger)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"error: {ledger}: is damaged after entry 3, the last good one: ")
        assert err.count("\n") == 1


@pytest.mark.slow
def test_flipped_bits_never_change_what_a_ledger_says(sound, ledger):
    """Every byte of the header, and 600 others: refused with LedgerError, or of no effect."""
    data = sound.read_bytes()
    content, outputs = rows_of(sound), _outputs(sound)
    draw = random.Random(2)
    places = [*range(100), *(draw.randrange(len(data)) for _ in range(600))]
    refused = 0
    for at in places:
        changed = bytearray(data)
        changed[at] ^= 1 << draw.randrange(8)
        ledger.write_bytes(changed)
        try:
            assert (rows_of(ledger), _outputs(ledger)) == (content, outputs)
        except LedgerError:
            refused += 1
    assert refused > 100  # many pages are full of entries and hashes: damage is seen


def test_damage_to_the_log_of_a_killed_process_is_refused(tmp_path):
    """SQLite itself takes the first damaged frame for the end of the log."""
    path = tmp_path / "ledger"
    book = new_book(path)
    live = reserve(book, 200)
    for position in range(4):
        released(live, 5, [position])
    content = list(book.rows())
    log = path.with_name("ledger-wal").read_bytes()
    before = copied(path, tmp_path / "before")
    crash(live)
    draw = random.Random(3)
    refused = 0
    for attempt in range(150):
        changed = bytearray(log)
        changed[draw.randrange(len(log))] ^= 1 << draw.randrange(8)
        copy = copied(before, tmp_path / f"copy {attempt}")
        copy.with_name(f"{copy.name}-wal").write_bytes(changed)
        try:
            rows = rows_of(copy)
        except LedgerError:
            refused += 1
        else:
            assert rows == content
    assert refused > 75
    assert "damaged after entry 1, the last good one" in refusal(before)  # its log is lost


@pytest.mark.parametrize("content", [None, b"", b"x" * 1_024])
def test_a_ledger_without_its_mark_is_refused(ledger, content):
    mark_path(ledger).unlink()
    if content is not None:
        mark_path(ledger).write_bytes(content)
    assert refusal(ledger).startswith(str(mark_path(ledger)))


def test_a_mark_survives_a_crash_while_it_is_written(ledger):
    """One of its two records is whole at any time."""
    mark = mark_path(ledger)
    whole = mark.read_bytes()
    for start in (0, 512):
        torn = bytearray(whole)
        torn[start : start + 40] = bytes(40)
        mark.write_bytes(torn)
        assert len(rows_of(ledger)) == 7


def test_cut_files_are_refused(sound, ledger):
    data = sound.read_bytes()
    for size in [*range(0, len(data), 1_024), len(data) - 1]:
        ledger.write_bytes(data[:size])
        with pytest.raises(LedgerError):
            _outputs(ledger)  # the last page may only tell the table of an open run from others


def _outputs(path):
    """What the open run hands out when it is resumed."""
    run = LedgerBook(path).resume(REQUEST, INPUTS)
    try:
        bodies = list(run._store.bodies(Released, run.number))
        kept = [run.release(b.transcript.events, lambda: pytest.fail("drew")) for b in bodies]
        return [list(map(str, outputs)) for outputs in kept]
    finally:
        crash(run)
