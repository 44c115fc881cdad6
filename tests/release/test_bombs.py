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


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("manifest.json", lambda c: c.update(unit="\ud800")),
        ("ledger.json", lambda c: c["events"][0].update(columns=["\udfff"])),
        ("schema.json", lambda c: c.update(description="a\ud800")),
    ],
)
def test_half_of_a_character_is_damage(saved, folder, capsys, name, edit):
    edited(saved, "r.zip", name, edit)
    for command in (COMMANDS[0], COMMANDS[4]):
        assert outcome(capsys, *command)[0] == 2


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


@pytest.mark.parametrize("name", ["ledger.json", "record.json", "schema.json", "workload.json"])
def test_a_small_file_of_many_values_is_refused_before_it_is_unpacked(saved, folder, name):
    bomb = '{"events":[' + "{}," * 4_000_000 + "{}]}"
    assert "damaged" in refusal(rewritten(saved, folder / "r.zip", {name: bomb}))


@pytest.mark.parametrize("value", ["{},", "[],", "0,", '"",'])
def test_many_values_are_refused_however_they_are_compressed(saved, folder, value):
    """Padded with digits of random numbers, so that the ratio is that of an honest text."""
    most = MOST_OBJECTS if value == "{}," else MOST_ELEMENTS
    noise = np.random.default_rng(1).integers(0, 10**18, 40_000)
    text = f'{{"events":["{"".join(map(str, noise))}",' + value * (most + 1) + "{}]}"
    refusal(rewritten(saved, folder / "r.zip", {"ledger.json": text}))


def test_a_member_that_lies_about_its_size_is_read_no_further(saved, folder):
    bomb = rewritten(saved, folder / "r.zip", {"ledger.json": '{"events":[' + "{}," * 6_000_000})
    content = bytearray(bomb.read_bytes())
    size = (18_000_011).to_bytes(4, "little")
    while (at := content.find(size)) >= 0:
        content[at : at + 4] = (900).to_bytes(4, "little")
    bomb.write_bytes(content)
    refusal(bomb)


def test_a_long_list_of_members_is_not_read(saved, folder):
    with zipfile.ZipFile(folder / "r.zip", "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}", b"")
    refusal(folder / "r.zip")
    assert main(["synthesize", "r.zip", "--schema", "s.json", "--rho", "1", "--out", "o.csv"]) == 2


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["manifest.json", "statement.md", "residuals.npy"])
def test_two_members_of_one_name_are_refused(saved, folder, name):
    path = rewritten(saved, folder / "r.zip", {})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, archive.read(name))
    refusal(path)


HUGE = 10**999
EDITS = {
    "rho": ("manifest.json", lambda m: m.update(rho=1e308, guarantee="")),
    "rho and epsilon": (
        "manifest.json", lambda m: m.update(rho=1e308, epsilon=1e308, guarantee=""),
    ),
    "epsilon": ("manifest.json", lambda m: m.update(epsilon=1e308, guarantee="")),
    "units": ("manifest.json", lambda m: m["facts"][-5].update(rho_units=HUGE)),
    "all units": ("manifest.json", lambda m: [f.update(rho_units=HUGE) for f in m["facts"]]),
    "delta units": ("manifest.json", lambda m: [f.update(delta_units=HUGE) for f in m["facts"]]),
    "most rows": ("manifest.json", lambda m: m.update(most_rows=HUGE)),
    "watched cells": ("manifest.json", lambda m: m.update(watched_cells=HUGE)),
    "version": ("manifest.json", lambda m: m.update(format_version=-HUGE)),
    "run": ("manifest.json", lambda m: m.update(ledger={"run": HUGE})),
    "denominator": (
        "ledger.json", lambda m: m["events"][0].update(noise_variance="1/1" + "0" * 1_500),
    ),
    "numerator": (
        "ledger.json", lambda m: m["events"][0].update(noise_variance="1" + "0" * 900 + "/1"),
    ),
    "sensitivity": (
        "ledger.json", lambda m: m["events"][0].update(squared_sensitivity="1" + "0" * 900 + "/1"),
    ),
    "threshold": (
        "ledger.json",
        lambda m: m["events"].append(
            {"mechanism": "partition selection", "purpose": "values", "columns": ["x"],
             "noise_variance": "1/1" + "0" * 900, "threshold": HUGE, "delta": "1/2"}
        ),
    ),
    "selection": (
        "ledger.json",
        lambda m: m["events"].append(
            {"mechanism": "exponential", "purpose": "selection", "columns": [],
             "epsilon": "1" + "0" * 900 + "/1"}
        ),
    ),
    "shape": ("schema.json", lambda m: m["columns"][1].update(max=10**15)),
    "large shape": ("schema.json", lambda m: m["columns"][1].update(max=10**6)),
    "precision": ("record.json", lambda m: m["residuals"][0].update(precision=HUGE)),
    "rescored": ("record.json", lambda m: m["rounds"].append({"rescored": HUGE})),
    "weight": ("workload.json", lambda m: m["parts"][0].update(weight=HUGE)),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_numbers_beyond_all_mechanisms_are_damage(saved, folder, capsys, case):
    path = edited(saved, folder / "r.zip", *EDITS[case])
    refusal(path)
    assert outcome(capsys, "sample", path, "--out", "o.csv")[0] == 2


def with_residuals(saved, path, edit):
    """The bundle with other numbers in the place of its residuals."""
    with zipfile.ZipFile(saved) as archive:
        data = archive.read("residuals.npy")
    values = np.frombuffer(data[128:], "<f8")
    return rewritten(saved, path, {"residuals.npy": data[:128] + edit(values).tobytes()})


RESIDUALS = {
    "largest": lambda values: np.full_like(values, 1e308),
    "negative": lambda values: np.full_like(values, -1e300),
    "other signs": lambda values: 2.0**62 * (-1.0) ** np.arange(values.size),
    "more rows than are counted": lambda values: values + 2.0**41,
}


@pytest.mark.parametrize("case", RESIDUALS)
def test_residuals_beyond_all_counts_are_damage(saved, folder, capsys, case):
    path = with_residuals(saved, folder / "r.zip", RESIDUALS[case])
    refusal(path)
    with pytest.raises(InputError, match="damaged"):
        Synthesizer.load(path)
    assert outcome(capsys, "sample", path, "--out", "o.csv")[0] == 2


def with_precision(saved, path, precision):
    def edit(record):
        for one in record["residuals"]:
            one.update(precision=precision)

    return edited(saved, path, "record.json", edit)


@pytest.mark.parametrize("precision", [5e-324, 1e-300, 1e300, 0.0, -1.0])
def test_a_precision_that_no_noise_has_is_damage(saved, folder, capsys, precision):
    path = with_precision(saved, folder / "r.zip", precision)
    refusal(path)
    assert outcome(capsys, "sample", path, "--out", "o.csv")[0] == 2


@pytest.mark.filterwarnings("ignore::adaptive_qs.errors.GuardRailWarning")
@pytest.mark.parametrize("precision", [2.0**-100, 1.0, 2.0**100])
@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-300, 2.0**40, -(2.0**40), None])
def test_whatever_is_read_is_sampled(saved, folder, precision, size):
    """The bounds leave nothing with which the arithmetic of a sample fails; None is chance."""
    signs = np.random.default_rng(7).choice([-1.0, 1.0], 100)
    middle = with_precision(saved, folder / "middle.zip", precision)
    path = with_residuals(
        middle,
        folder / "r.zip",
        lambda values: 2.0**40 * signs[: values.size] if size is None else values * 0 + size,
    )
    model = Synthesizer.load(path)
    assert model.sample(5, seed=1).shape == (5, 2)
    assert model.release_.num_rows >= 1
    model.release_.marginals([["age", "job"]])
    model.release_.fitted_marginals([["age"]])


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


@pytest.mark.parametrize("case", HEADERS)
@pytest.mark.parametrize("name", ["residuals.npy", "reference.npy"])
def test_headers_of_arrays_are_compared_and_not_parsed(saved, folder, capsys, name, case):
    with zipfile.ZipFile(saved) as archive:
        rest = archive.read(name)[128:]
    path = rewritten(saved, folder / "r.zip", {name: HEADERS[case] + 5 * rest})
    refusal(path)
    assert outcome(capsys, "sample", path, "--out", "o.csv")[0] == 2


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000])
@pytest.mark.parametrize("name", ["manifest.json", "ledger.json", "record.json", "workload.json"])
def test_numbers_that_json_cannot_hold_are_damage(saved, folder, name, number):
    with zipfile.ZipFile(saved) as archive:
        text = archive.read(name).decode()
    place = '"settings": {' if name == "manifest.json" else "{"
    found = text.replace(place, f'{place}"x": {number}, ', 1)
    assert found != text
    refusal(rewritten(saved, folder / "r.zip", {name: found}))


def test_a_key_that_occurs_twice_is_damage(saved, folder):
    with zipfile.ZipFile(saved) as archive:
        text = archive.read("manifest.json").decode()
    twice = text.replace('"rho":', '"rho": 0.001, "rho":', 1)
    refusal(rewritten(saved, folder / "r.zip", {"manifest.json": twice}))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("name", ["manifest.json", "ledger.json", "schema.json"])
def test_nesting_is_damage(saved, folder, name, opening):
    refusal(rewritten(saved, folder / "r.zip", {name: opening * 100_000}))


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
