"""What a release says of itself is no evidence: `ledger verify --release` finds every forgery."""

import hashlib
import io
import json
import re
import shutil
import struct
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from adaptive_qs.answering.api import answer
from adaptive_qs.cli.entry import main
from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import START, Released
from adaptive_qs.ledger.run import release_hash
from adaptive_qs.privacy.accounting import compute_epsilon, compute_mu
from adaptive_qs.privacy.budget import float_above
from adaptive_qs.privacy.events import Cost, GaussianEvent, SelectionEvent
from adaptive_qs.release.bundle import MEMBERS
from adaptive_qs.release.facts import TABLES, list_facts
from adaptive_qs.release.release import Release
from adaptive_qs.release.statement import Manifest
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.schema import Schema

from .conftest import working_in

TABLE = ["synthesize", "t.csv", "--schema", "s.json", "--ledger", "l"]


@pytest.fixture(scope="module")
def true(tmp_path_factory):
    """A ledger with two releases of tables and one of answers, all true."""
    with working_in(tmp_path_factory.mktemp("true")) as folder:
        commands = [
            ["ledger", "create", "--ledger", "l", "--rho", "9"],
            [*TABLE, "--rho", "0.5", "--release", "r.zip", "--out", "o.csv"],
            [*TABLE, "--rho", "0.4", "--release", "other.zip"],
            ["answer", *TABLE[1:], "--rho", "0.1", "--out", "a.csv"],
        ]
        for command in commands:
            assert main(command) == 0
    return folder


@pytest.fixture
def forger(true, run, tmp_path):
    """The same in the working directory, where it may be changed."""
    for path in true.iterdir():
        shutil.copy(path, tmp_path)
    return run


def found(run, name="r.zip"):
    """The line by which a forgery is refused."""
    outcome = run("ledger", "verify", "--ledger", "l", "--release", name)
    assert (outcome.code, outcome.out) == (2, ""), outcome
    assert outcome.err.startswith(f"error: {name}")
    assert outcome.err.count("\n") == 1
    return outcome.err


def verified(run, name):
    outcome = run("ledger", "verify", "--ledger", "l", "--release", name)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def written(path, contents):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def changed(path="r.zip", **contents):
    """The bundle with these members replaced; underscores stand for dots."""
    new = {name.replace("_", ".", 1): content for name, content in contents.items()}
    written(path, members(path) | new)


def cheaper(event):
    if isinstance(event, GaussianEvent):
        return replace(event, noise_variance=100 * Fraction(event.noise_variance))
    assert isinstance(event, SelectionEvent)
    return replace(event, epsilon=Fraction(event.epsilon) / 10)


def forge_charges(path="r.zip"):
    """Every charge divided by 100, and everything else that loading checks made to fit."""
    bundle = Release.load(path)
    events = tuple(map(cheaper, bundle.events))
    spent, rho = Cost.of(events), bundle.manifest.rho / 99
    content = bundle.manifest.model_dump() | {
        "facts": list_facts(events, bundle.schema, TABLES),
        "rho_spent": float_above(spent.rho),
        "rho": rho,
        "epsilon": compute_epsilon(rho, bundle.manifest.delta),
        "mu": compute_mu(rho),
        "guarantee": "",
    }
    replace(bundle, events=events, manifest=Manifest.model_validate(content)).save(path, force=True)
    assert Release.load(path).manifest.epsilon < bundle.manifest.epsilon / 5


def forge_residuals(path="r.zip"):
    """Residuals 0, 1, 2, ... instead of those that were paid for."""
    count = sum(e.values.size for e in Release.load(path).estimates.values())
    file = io.BytesIO()
    np.save(file, np.arange(count, dtype="<f8"))
    changed(path, residuals_npy=file.getvalue())
    Release.load(path)


def edit_member(name, before, after):
    text = members("r.zip")[name].decode()
    edited = re.sub(before, after, text, count=1)
    assert edited != text
    changed(**{name.replace(".", "_"): edited})


def forge_statement():
    edit_member("statement.md", r"\([0-9.]+, 1e-09\)", "(0.01, 1e-09)")


def forge_page():
    edit_member("page.html", r"<li>Guarantee: [^<]*", "<li>Guarantee: perfect secrecy")


def test_true_releases_stand_in_their_ledger(forger):
    assert verified(forger, "r.zip").endswith("all sound; r.zip is recorded in it\n")
    assert verified(forger, "a.csv").endswith("a.csv is recorded in it\n")
    verified(forger, "a.csv.manifest.json")
    for name in ("o.csv", "o.csv.manifest.json"):
        assert "not checked: that the table was drawn from the release" in verified(forger, name)
    outcome = forger(
        "ledger", "verify", "--ledger", "l", "--release", "o.csv", "--json", "--max-memory", "1GB"
    )
    assert json.loads(outcome.out)["unchecked"] != []


def test_a_forgery_of_everything_is_found(forger):
    forge_charges()
    forge_residuals()
    forge_statement()
    forge_page()
    line = found(forger)
    for name in ("charges", "manifest.json", "ledger.json", "residuals.npy"):
        assert name in line
    for name in ("statement.md", "page.html"):
        assert f"{name} does not follow from the rest" in line


@pytest.mark.parametrize(
    ("forge", "names", "others"),
    [
        (forge_charges, ("charges", "ledger.json", "manifest.json"), ("residuals", "statement.md")),
        (forge_statement, ("statement.md does not follow",), ("charges", "page.html")),
        (forge_page, ("page.html does not follow",), ("charges", "statement.md")),
        (forge_residuals, ("residuals.npy differs", "page.html"), ("charges", "statement.md")),
    ],
)
def test_each_forgery_alone_is_found_and_named(forger, forge, names, others):
    forge()
    line = found(forger)
    assert all(name in line for name in names), line
    assert not any(name in line for name in others), line


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_two_true_releases_do_not_make_a_third(forger, name):
    ours, theirs = members("r.zip"), members("other.zip")
    if ours[name] == theirs[name]:
        assert name in ("schema.json", "workload.json")
        return
    written("r.zip", ours | {name: theirs[name]})
    found(forger)
    written("r.zip", theirs | {name: ours[name]})
    found(forger)


def test_all_members_of_another_release_but_the_place_are_found(forger):
    ours, theirs = (json.loads(members(p)["manifest.json"]) for p in ("r.zip", "other.zip"))
    theirs["ledger"] = ours["ledger"]
    manifest = Manifest.model_validate(theirs).to_json()
    written("r.zip", members("other.zip") | {"manifest.json": manifest})
    line = found(forger)
    assert "charges" in line
    assert "residuals.npy" in line


def test_a_bundle_says_nothing_but_what_was_handed_over(forger):
    """Not even in another spelling, or in members that no program reads."""
    spelt = json.dumps(json.loads(members("r.zip")["record.json"]), indent=3)
    changed(record_json=spelt)
    assert "record.json differs" in found(forger)
    written("r.zip", members("other.zip") | {"README.txt": "epsilon 0"})
    assert "'README.txt' is no part of a release" in found(forger)
    rest = members("other.zip")
    del rest["statement.md"]
    written("r.zip", rest)
    assert "statement.md is missing" in found(forger)


def test_a_missing_page_may_come_from_another_version(forger):
    """An honest release of another version renders otherwise; the line says where to look."""
    content = json.loads(members("r.zip")["manifest.json"])
    content["versions"]["jinja2"] = "1.0"
    changed(manifest_json=json.dumps(content), page_html="another page")
    assert "page.html does not follow from the rest (made with another jinja2" in found(forger)


def edited(name, edit):
    content = json.loads(Path(name).read_text())
    edit(content)
    Path(name).write_text(json.dumps(content))


def test_edited_answers_are_found(forger):
    text = Path("a.csv").read_text()
    line = text.splitlines()[1]
    cells = line.split(",")
    cells[2] = "123.5"
    Path("a.csv").write_text(text.replace(line, ",".join(cells)))
    assert "the answers next to it are others" in found(forger, "a.csv")
    assert "answers" in found(forger, "a.csv.manifest.json")

    digest = hashlib.sha256(Path("a.csv").read_bytes()).hexdigest()
    edited("a.csv.manifest.json", lambda content: content.update(sha256=digest))
    assert "answers differs" in found(forger, "a.csv")


def test_answers_that_are_not_there_are_not_vouched_for(forger):
    Path("a.csv").unlink()
    assert "not checked: the answers next to it" in verified(forger, "a.csv.manifest.json")


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.update(epsilon=c["epsilon"] / 2),
        lambda c: c.update(epsilon=c["epsilon"] * 2, guarantee=""),
        lambda c: c.update(queries=c["queries"] + 1),
        lambda c: c.update(guarantee="perfect secrecy"),
        lambda c: c["charges"][0].update(times=10**9),
        lambda c: c["charges"][0]["charge"].update(columns=["something else"]),
        lambda c: c.pop("sha256"),
        lambda c: c.update(remark="reviewed"),
        lambda c: c["ledger"].update(run=1),
    ],
)
def test_edited_statements_of_answers_are_found(forger, edit):
    edited("a.csv.manifest.json", edit)
    found(forger, "a.csv.manifest.json")


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.update(epsilon=c["epsilon"] / 2),
        lambda c: c.update(alone=["age"]),
        lambda c: c["settings"].update(note="reviewed"),
        lambda c: c["charges"].pop(),
        lambda c: c.pop("charges"),
        lambda c: c["charges"].reverse(),
        lambda c: c.update(sha256="0" * 64),
        lambda c: c.update(remark="reviewed"),
        lambda c: c["sampling"].update(note="reviewed"),
        lambda c: c["sampling"].update(seed="drawn by hand; epsilon 0.1"),
        lambda c: c["sampling"].update(rows=[1, 2]),
        lambda c: c["sampling"].update(formulas={"x": 1}),
        lambda c: c["sampling"].pop("rows"),
        lambda c: c.update(epsilon=str(c["epsilon"])),
        lambda c: c.update(unit="\ud800"),
    ],
)
def test_edited_statements_of_tables_are_found(forger, edit):
    edited("o.csv.manifest.json", edit)
    found(forger, "o.csv.manifest.json")


@pytest.mark.parametrize("where", ["comment", "comment of a member", "before", "between"])
def test_nothing_stands_around_the_members_of_a_bundle(forger, where):
    content = members("r.zip")
    said = b"<html>epsilon 0.001</html>"
    with zipfile.ZipFile("r.zip", "w") as archive:
        if where == "comment":
            archive.comment = said
        for name, data in content.items():
            info = zipfile.ZipInfo(name)
            info.comment = said if where == "comment of a member" else b""
            archive.writestr(info, data)
            if where == "between" and name == "manifest.json":
                archive.fp.write(said)
                archive.start_dir = archive.fp.tell()
    if where == "before":
        Path("r.zip").write_bytes(said + Path("r.zip").read_bytes())
    found(forger)


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


def headers(data, signature):
    """Where the headers of all members begin, in the directory or before the members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        starts = [member.header_offset for member in archive.infolist()]
        at = archive.start_dir
    if signature == LOCAL:
        return starts
    found = []
    while data[at : at + 4] == CENTRAL:
        found.append(at)
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    return found


def appended(data):
    return data + b"<html>epsilon is 0.01</html>" + b"x" * 60_000


def appended_as_comment(data):
    """Of which the end of the directory tells the length, as readers expect."""
    more = b"<html>epsilon is 0.01</html>"
    return data[:-2] + struct.pack("<H", len(more)) + more


def in_a_local_header(data):
    """In the extra field of the first member; all offsets are moved."""
    extra = struct.pack("<HH", 0x9999, 39_996) + b"E" * 39_996
    directory = headers(data, CENTRAL)[0]
    name, before = struct.unpack_from("<2H", data, 26)
    rest = bytearray(data[directory:])
    for at in headers(data, CENTRAL)[1:]:
        place = at - directory + 42
        struct.pack_into("<I", rest, place, struct.unpack_from("<I", rest, place)[0] + len(extra))
    struct.pack_into("<I", rest, len(rest) - 6, directory + len(extra))
    length = struct.pack("<H", before + len(extra))
    start = 30 + name + before
    return data[:28] + length + data[30:start] + extra + data[start:directory] + bytes(rest)


def at_offset(signature, place, value):
    def edit(data):
        new = bytearray(data)
        for at in headers(data, signature):
            new[at + place : at + place + len(value)] = value
        return bytes(new)

    return edit


def compressed(data):
    """As earlier versions packed texts."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.infolist():
            content = old.read(member)
            if not member.filename.endswith(".npy"):
                member.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(member, content)
    return out.getvalue()


BYTES = {
    "appended": appended,
    "comment": appended_as_comment,
    "extra field of a local header": in_a_local_header,
    "symbolic links": at_offset(CENTRAL, 38, struct.pack("<I", 0o120777 << 16)),
    "run by everybody": at_offset(CENTRAL, 38, struct.pack("<I", 0o100777 << 16)),
    "time in the directory": at_offset(CENTRAL, 12, b"\x01\x02"),
    "time before the members": at_offset(LOCAL, 10, b"\x01\x02"),
    "version in local headers": at_offset(LOCAL, 4, b"\xff"),
    "internal attributes": at_offset(CENTRAL, 36, b"\x01"),
    "compressed": compressed,
}


@pytest.mark.parametrize("case", BYTES)
def test_every_byte_of_a_bundle_is_checked(forger, case):
    """Also what no reader of members sees; the parts of each of these are those released."""
    true = Path("r.zip").read_bytes()
    forged = BYTES[case](true)
    assert forged != true
    Path("r.zip").write_bytes(forged)
    found(forger)


@pytest.mark.slow
def test_no_byte_of_a_bundle_can_be_changed(forger):
    """One of each kind of place, and some at random."""
    true = Path("r.zip").read_bytes()
    rng = np.random.default_rng(5)
    places = [*headers(true, CENTRAL), *headers(true, LOCAL)]
    for at in [*rng.choice(len(true), 40), *(place + k for place in places[:2] for k in range(46))]:
        forged = bytearray(true)
        forged[at] ^= 1 << int(rng.integers(8))
        Path("r.zip").write_bytes(forged)
        found(forger)


def test_a_bundle_of_an_earlier_version_is_packed_anew(forger):
    """Texts were compressed, by a library that other machines have in other versions."""
    old = compressed(Path("r.zip").read_bytes())
    true = Path("r.zip").read_bytes()
    Path("r.zip").write_bytes(old)
    assert "save it anew with Synthesizer.load(FILE).save(NEW)" in found(forger)
    Synthesizer.load("r.zip").save("new.zip")
    verified(forger, "new.zip")
    assert Path("new.zip").read_bytes() == true


@pytest.mark.parametrize("name", ["o.csv", "a.csv"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + " " * 60_000,
        lambda text: text.replace("\n", "\n\t", 3),
        lambda text: text.replace("delta", "d\\u0065lta", 1),
        lambda text: "\ufeff" + text,
    ],
    ids=["blanks behind", "blanks between", "spelling", "byte order mark"],
)
def test_every_byte_of_a_statement_is_checked(forger, name, edit):
    path = Path(f"{name}.manifest.json")
    true = path.read_bytes().decode()
    path.write_bytes(edit(true).encode())
    assert json.loads(path.read_text("utf-8-sig")) == json.loads(true)
    assert "byte for byte" in found(forger, name)


def test_an_edited_table_is_not_the_one_of_its_statement(forger):
    assert forger("sample", "r.zip", "--rows", 20, "--out", "later.parquet").code == 0
    for name in ("o.csv", "a.csv", "later.parquet"):
        verified(forger, name)
        Path(name).write_bytes(Path(name).read_bytes() + b"\n")
        differ = "the answers next to it are others" if name == "a.csv" else "its table differs"
        assert differ in found(forger, name)


def test_a_table_sampled_later_states_the_same_release(forger):
    assert forger("sample", "r.zip", "--rows", 20, "--out", "later.parquet").code == 0
    verified(forger, "later.parquet")


def test_a_release_that_hides_the_last_charges_of_its_run_is_found(forger):
    """Even with the true hash of those that it admits."""
    book = LedgerBook("l")
    place = Release.load("r.zip").manifest.ledger
    assert book.has(place)
    digest = START
    for body in list(book.bodies(Released, 1))[:-1]:
        digest = release_hash(digest, body)
    assert not book.has(replace(place, releases=place.releases - 1, hash=digest.hex()))
    book.close()


def test_what_python_saves_and_writes_stands_in_the_ledger(forger):
    schema = Schema.load("s.json")
    model = Synthesizer(rho=0.1, ledger="l").fit("t.csv", schema=schema)
    model.release_.save("direct.zip")  # not through model.save, which also ends the run
    verified(forger, "direct.zip")
    model.save("saved.zip")
    verified(forger, "saved.zip")
    answer("t.csv", schema, rho=0.05, ledger="l").write("b.parquet")
    verified(forger, "b.parquet")


def test_an_interrupted_run_hands_over_what_it_recorded_before(forger):
    first = Synthesizer(rho=0.1, ledger="l").fit("t.csv", schema="s.json")
    first._run.leave()  # as if the process had died before it saved
    again = Synthesizer(rho=0.1, ledger="l", resume=True).fit("t.csv", schema="s.json")
    again.save("again.zip")
    verified(forger, "again.zip")
    book = LedgerBook("l")
    assert len(book.published(4)) == 1
    book.close()
