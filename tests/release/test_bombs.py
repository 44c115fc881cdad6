"""Bundles and statements that are small to send and large to read are refused early."""

import json
import sys
import threading
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.cli.entry import main
from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import InputError, ResourceExceeded
from adaptive_qs.jsonfile import MOST_ELEMENTS, MOST_OBJECTS, MOST_TEXT_BYTES
from adaptive_qs.release.bundle import Bundle
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table import archive as archives
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import WorkloadFile
from adaptive_qs.workload.workload import MAX_CLIQUES, Workload

from .examples import edited, rewritten

pytestmark = pytest.mark.usefixtures("quick_tables")

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["a", "b"]},
        {"name": "age", "type": "integer", "min": 0, "max": 9},
    ],
}
TABLE = "job,age\n" + "".join(f"{'ab'[i % 2]},{i % 10}\n" for i in range(60))
MEGABYTES = 60
"""Most that refusing a bundle may take, whatever it stands for."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "t.csv").write_text(TABLE)
    model = Synthesizer(rho=0.5).fit(folder / "t.csv", schema=SCHEMA)
    model.save(folder / "r.zip")
    return folder / "r.zip"


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "x.csv").write_text(TABLE)
    return tmp_path


def refusal(path, kind=InputError):
    """The line by which it is refused, quickly and in little memory."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        with pytest.raises(kind) as caught:
            Bundle.load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEGABYTES * 2**20, peak
    assert time.monotonic() - start < 10
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


@pytest.mark.parametrize("ways", [3, 4])
def test_marginals_that_are_asked_for_again_and_again_are_refused(ways, tmp_path):
    """A few kilobytes may ask for millions of sets, part by part."""
    columns = [{"name": f"c{i}", "type": "boolean"} for i in range(60)]
    schema = {"version": 1, "columns": columns}
    rows = pd.DataFrame(np.zeros((40, 60), dtype=bool), columns=[c["name"] for c in columns])
    Synthesizer(rho=0.5, workload=1).fit(rows, schema=schema).save(tmp_path / "r.zip")
    parts = {"version": 1, "parts": [{"ways": [ways]}] * 20_000}
    path = rewritten(tmp_path / "r.zip", tmp_path / "b.zip", {"workload.json": json.dumps(parts)})
    assert path.stat().st_size < 60_000
    refusal(path)


COMMANDS = [
    ["sample", "r.zip", "--out", "o.csv"],
    ["synthesize", "t.csv", "--schema", "r.zip", "--rho", "1", "--out", "o.csv"],
    ["answer", "t.csv", "--schema", "r.zip", "--rho", "1", "--out", "o.csv"],
    ["plan", "--schema", "r.zip"],
    ["evaluate", "t.csv", "x.csv", "--schema", "s.json", "--release", "r.zip"],
    ["evaluate", "t.csv", "x.csv", "--schema", "r.zip"],
    ["ledger", "verify", "--ledger", "l", "--release", "r.zip"],
    ["ledger", "restore", "--ledger", "l", "--release", "r.zip"],
    ["audit", "--schema", "r.zip", "--pairs", "1"],
]


def outcome(capsys, *command):
    capsys.readouterr()
    code = main([str(word) for word in command])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("error: ")
    assert "internal error" not in captured.err
    return code, captured.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_a_bomb_in_one_line(saved, folder, capsys, command):
    main(["ledger", "create", "--ledger", "l", "--rho", "1"])
    bomb = '{"version":1,"columns":[' + "{}," * 4_000_000 + "{}]}"
    rewritten(saved, "r.zip", dict.fromkeys(["schema.json", "ledger.json"], bomb))
    assert Path("r.zip").stat().st_size < 100_000
    start = time.monotonic()
    code, _ = outcome(capsys, *command)
    assert code == 2
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_ceiling_of_memory_covers_reading_a_bundle(saved, folder, capsys, command):
    main(["ledger", "create", "--ledger", "l", "--rho", "1"])
    rewritten(saved, "r.zip", {})
    code, err = outcome(capsys, *command, "--max-memory", "300MB")
    assert code == 4
    assert err.startswith("error: r.zip: needs about 350 MB to be read, more than the 300 MB")


def test_the_ceiling_covers_python_too(saved, folder):
    for call in (
        lambda: Synthesizer.load(saved, max_memory="300MB"),
        lambda: Schema.load(saved, max_memory="300MB"),
        lambda: Synthesizer(rho=1, max_memory="300MB").fit("t.csv", schema=saved),
    ):
        with pytest.raises(ResourceExceeded, match="to be read"):
            call()
    assert Synthesizer.load(saved, max_memory="3GB").sample(5).shape == (5, 2)


# Damage: each case makes a bundle that is refused in one line, quickly and in little memory.


def text_of(saved, name):
    with zipfile.ZipFile(saved) as archive:
        return archive.read(name).decode()


def with_text(name, text):
    return lambda saved, path: rewritten(saved, path, {name: text})


def with_edit(name, edit):
    return lambda saved, path: edited(saved, path, name, edit)


def manifest_with(**changes):
    return with_edit("manifest.json", lambda m: m.update(changes))


def event_with(**changes):
    return with_edit("ledger.json", lambda m: m["events"][0].update(changes))


def more_event(**content):
    return with_edit("ledger.json", lambda m: m["events"].append(content))


def all_facts(**changes):
    return with_edit("manifest.json", lambda m: [f.update(changes) for f in m["facts"]])


def with_number(name, number):
    place = '"settings": {' if name == "manifest.json" else "{"

    def damage(saved, path):
        text = text_of(saved, name)
        found = text.replace(place, f'{place}"x": {number}, ', 1)
        assert found != text
        return rewritten(saved, path, {name: found})

    return damage


def with_residuals(edit):
    """Other numbers in the place of the residuals."""

    def damage(saved, path):
        with zipfile.ZipFile(saved) as archive:
            data = archive.read("residuals.npy")
        values = np.frombuffer(data[128:], "<f8")
        return rewritten(saved, path, {"residuals.npy": data[:128] + edit(values).tobytes()})

    return damage


def with_precision(precision):
    return with_edit("record.json", lambda r: [one.update(precision=precision)
                                               for one in r["residuals"]])  # fmt: skip


def with_header(name, header):
    def damage(saved, path):
        with zipfile.ZipFile(saved) as archive:
            rest = archive.read(name)[128:]
        return rewritten(saved, path, {name: header + 5 * rest})

    return damage


def many(value):
    """Padded with digits of random numbers, so that the ratio is that of an honest text."""
    most = MOST_OBJECTS if value == "{}," else MOST_ELEMENTS
    noise = np.random.default_rng(1).integers(0, 10**18, 40_000)
    return f'{{"events":["{"".join(map(str, noise))}",' + value * (most + 1) + "{}]}"


def lying_about_its_size(saved, path):
    rewritten(saved, path, {"ledger.json": '{"events":[' + "{}," * 6_000_000})
    content = bytearray(path.read_bytes())
    size = (18_000_011).to_bytes(4, "little")
    while (at := content.find(size)) >= 0:
        content[at : at + 4] = (900).to_bytes(4, "little")
    path.write_bytes(content)
    return path


def with_many_members(saved, path):
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}", b"")
    return path


def twice(name):
    def damage(saved, path):
        rewritten(saved, path, {})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, archive.read(name))
        return path

    return damage


HUGE = 10**999
LONG = "1" + "0" * 900
BOMB = '{"events":[' + "{}," * 4_000_000 + "{}]}"
NPY = b"\x93NUMPY\x01\x00"
HEADERS = {
    "nested": NPY + (9_000).to_bytes(2, "little") + b"(" * 9_000,
    "objects": NPY
    + (118).to_bytes(2, "little")
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117)
    + b"\n",
    "long": NPY + b"\xff\xff",
    "of another version": b"\x93NUMPY\x02\x00" + b"\x00" * 4,
    "none": b"",
}
DAMAGE = {
    "rho": manifest_with(rho=1e308, guarantee=""),
    "rho and epsilon": manifest_with(rho=1e308, epsilon=1e308, guarantee=""),
    "epsilon": manifest_with(epsilon=1e308, guarantee=""),
    "units": with_edit("manifest.json", lambda m: m["facts"][-5].update(rho_units=HUGE)),
    "all units": all_facts(rho_units=HUGE),
    "delta units": all_facts(delta_units=HUGE),
    "most rows": manifest_with(most_rows=HUGE),
    "watched cells": manifest_with(watched_cells=HUGE),
    "version": manifest_with(format_version=-HUGE),
    "run": manifest_with(ledger={"run": HUGE}),
    "half a character": manifest_with(unit="\ud800"),
    "half a character in a charge": event_with(columns=["\udfff"]),
    "half a character in the schema": with_edit(
        "schema.json", lambda c: c.update(description="a\ud800")
    ),
    "denominator": event_with(noise_variance="1/1" + "0" * 1_500),
    "numerator": event_with(noise_variance=f"{LONG}/1"),
    "sensitivity": event_with(squared_sensitivity=f"{LONG}/1"),
    "threshold": more_event(
        mechanism="partition selection", purpose="values", columns=["x"],
        noise_variance=f"1/{LONG}", threshold=HUGE, delta="1/2",
    ),
    "selection": more_event(
        mechanism="exponential", purpose="selection", columns=[], epsilon=f"{LONG}/1"
    ),
    "shape": with_edit("schema.json", lambda m: m["columns"][1].update(max=10**15)),
    "large shape": with_edit("schema.json", lambda m: m["columns"][1].update(max=10**6)),
    "precision": with_edit("record.json", lambda m: m["residuals"][0].update(precision=HUGE)),
    "rescored": with_edit("record.json", lambda m: m["rounds"].append({"rescored": HUGE})),
    "weight": with_edit("workload.json", lambda m: m["parts"][0].update(weight=HUGE)),
    "residuals largest": with_residuals(lambda values: np.full_like(values, 1e308)),
    "residuals negative": with_residuals(lambda values: np.full_like(values, -1e300)),
    "residuals of other signs": with_residuals(lambda v: 2.0**62 * (-1.0) ** np.arange(v.size)),
    "more rows than are counted": with_residuals(lambda values: values + 2.0**41),
    "a key twice": lambda saved, path: rewritten(saved, path, {"manifest.json": text_of(
        saved, "manifest.json").replace('"rho":', '"rho": 0.001, "rho":', 1)}),
    "a lie about a size": lying_about_its_size,
    "many members": with_many_members,
    **{f"precision {p}": with_precision(p) for p in (5e-324, 1e-300, 1e300, 0.0, -1.0)},
    **{f"header of {name} {case}": with_header(name, header)
       for case, header in HEADERS.items() for name in ("residuals.npy", "reference.npy")},
    **{f"{number[:9]} in {name}": with_number(name, number)
       for number in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000)
       for name in ("manifest.json", "ledger.json", "record.json", "workload.json")},
    **{f"nesting by {opening} in {name}": with_text(name, opening * 100_000)
       for opening in ("[", '{"a":') for name in ("manifest.json", "ledger.json", "schema.json")},
    **{f"many values in {name}": with_text(name, BOMB)
       for name in ("ledger.json", "record.json", "schema.json", "workload.json")},
    **{f"many {value} that hardly compress": with_text("ledger.json", many(value))
       for value in ("{},", "[],", "0,", '"",')},
    **{f"{name} twice": twice(name) for name in ("manifest.json", "statement.md", "residuals.npy")},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", DAMAGE)
@pytest.mark.one_in(3)
def test_damage_is_refused_in_a_line_by_python_and_by_the_command(saved, folder, capsys, case):
    path = DAMAGE[case](saved, folder / "r.zip")
    assert "damaged" in refusal(path) or case == "version"
    with pytest.raises(InputError):
        Synthesizer.load(path)
    assert outcome(capsys, "sample", path, "--out", "o.csv")[0] == 2


def test_a_zip_of_many_files_is_no_table(saved, folder):
    with_many_members(saved, folder / "r.zip")
    assert main(["synthesize", "r.zip", "--schema", "s.json", "--rho", "1", "--out", "o.csv"]) == 2


@pytest.mark.filterwarnings("ignore::adaptive_qs.errors.GuardRailWarning")
@pytest.mark.parametrize("precision", [2.0**-100, 1.0, 2.0**100])
@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-300, 2.0**40, -(2.0**40), None])
def test_whatever_is_read_is_sampled(saved, folder, precision, size):
    """The bounds leave nothing with which the arithmetic of a sample fails; None is chance."""
    signs = np.random.default_rng(7).choice([-1.0, 1.0], 100)
    middle = with_precision(precision)(saved, folder / "middle.zip")
    path = with_residuals(
        lambda values: 2.0**40 * signs[: values.size] if size is None else values * 0 + size
    )(middle, folder / "r.zip")
    model = Synthesizer.load(path)
    assert model.sample(5, seed=1).shape == (5, 2)
    assert model.release_.num_rows >= 1
    model.release_.marginals([["age", "job"]])
    model.release_.fitted_marginals([["age"]])


def test_statements_beside_tables_are_bounded_too(saved, folder, capsys):
    rewritten(saved, "r.zip", {})
    main(["ledger", "create", "--ledger", "l", "--rho", "1"])
    command = ["synthesize", "t.csv", "--schema", "s.json", "--ledger", "l", "--rho", "0.5"]
    assert main([*command, "--out", "o.csv"]) == 0
    manifest = Path("o.csv.manifest.json")
    good = manifest.read_text()
    verify = ["ledger", "verify", "--ledger", "l", "--release", manifest]
    content = json.loads(good)
    bad = [
        good.rstrip("}\n") + ', "charges": [' + "{}," * (MOST_OBJECTS + 9) + "{}]}",
        json.dumps(content | {"rho": 1e308, "epsilon": 1e308, "guarantee": ""}),
        json.dumps(content | {"charges": [{"noise_variance": "1/1" + "0" * 1_500}]}),
        good.replace('"rho":', '"rho": NaN, "x":', 1),
        good.replace('"rho":', '"rho": 0.001, "rho":', 1),
        "[" * 100_000,
    ]
    for text in bad:
        manifest.write_text(text)
        assert outcome(capsys, *verify)[0] == 2
    assert main(["evaluate", "t.csv", "o.csv", "--schema", "s.json"]) == 0
    manifest.write_text(good)
    assert outcome(capsys, *verify, "--max-memory", "300MB")[0] == 4


def test_the_bounds_leave_room_for_the_largest_honest_release():
    """500 columns, 8,000 rounds over marginals of six of them, a million marginals asked for."""
    rounds, ways, columns = 8_000, 6, 500
    events = columns + rounds * (2**ways + 1)
    assert events + rounds <= MOST_OBJECTS
    assert max(5 * events, rounds * 2**ways * (ways + 3)) <= MOST_ELEMENTS
    assert 250 * events <= MOST_TEXT_BYTES
    domain = Domain(tuple(Attribute(f"c{i}", 2) for i in range(60)))
    workload = Workload.all_ways(domain, 3)
    text = WorkloadFile.of(workload).model_dump_json()
    elements = text.count(",") + text.count("[") + text.count("{")
    assert elements / len(workload) * MAX_CLIQUES * 2 <= MOST_ELEMENTS
    assert len(text) / len(workload) * MAX_CLIQUES <= MOST_TEXT_BYTES


def test_a_large_honest_release_is_read(folder):
    """Equal charges compress well, as earlier versions did; the ratio is bounded far above."""
    columns = [{"name": f"c{i}", "type": "integer", "min": 0, "max": 1} for i in range(120)]
    table = {f"c{i}": [j % 2 for j in range(50)] for i in range(120)}
    model = Synthesizer(rho=0.5).fit(pd.DataFrame(table), schema={"version": 1, "columns": columns})
    model.save("large.zip")
    with zipfile.ZipFile("large.zip") as archive:
        texts = [archive.read(name) for name in archive.namelist() if name.endswith("json")]
    assert max(len(text) / len(zlib.compress(text)) for text in texts) < archives.MOST_RATIO
    assert len(Bundle.load("large.zip").events) > 120


def test_a_thread_with_a_small_stack_refuses_nesting_too(saved, folder):
    path = rewritten(saved, folder / "r.zip", {"record.json": "[" * 100_000})
    lines = []
    before = threading.stack_size(2**20)
    try:
        worker = threading.Thread(target=lambda: lines.append(refusal(path)))
        worker.start()
        worker.join()
    finally:
        threading.stack_size(before)
    assert len(lines) == 1
    assert sys.getrecursionlimit() < 100_000
