"""Sessions of the command line, stored as text: what each command prints, where, and its exit code.

A file of ``golden/`` has cases that begin with ``## name`` and work in a folder of their own with
t.csv and s.json. ``= town`` makes further inputs by a function of :data:`INPUTS`, ``< name text``
writes a file, and ``$ plan --demo`` runs a command. What follows is compared: stdout (indented;
a JSON object as a line per field), stderr (``! ``) and an exit code that is not 0 (``? ``).
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from ..family import DEEP, made_deep

FOLDER = Path(__file__).parent / "golden"
CANARY = "c4n4ry"
"""A private cell, which no command prints."""
HEADER = "job,age,day"
SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "values": ["a", "b"], "missing": ["?"]},
        {"name": "age", "type": "integer", "min": 0, "max": 9},
        {"name": "day", "type": "date", "min": "2020-01-01", "max": "2020-01-09"},
    ],
}
VARYING = [
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b20[2-9]\d-\d\d-\d\d[T ]\d\d:\d\d\S*"), "<time>"),
    (re.compile(r"[\d.,]*\d(?= (MB|seconds)\b)"), "#"),
    (re.compile(r"^(  -  .{40}).+$", re.M), r"\1 ..."),
    (re.compile(r"^(?:  seconds  |seconds: ).*$", re.M), lambda m: re.sub(r"\d+\.\d", "#", m[0])),
]
"""What differs from run to run, or is stored in tests/evaluation (verdicts), and its stand-in."""
VARYING_FIELDS = {"seconds", "memory_mb", "peak_memory_mb", "started", "ended", "head",
                  "verdict", "limitations"}  # fmt: skip
"""Fields of JSON objects that do."""
LONGEST = 150
"""Characters of a field of a JSON object; longer ones are cut."""


def rows(count=300):
    """Lines of a private table of the schema."""
    rng = np.random.default_rng(1)
    return [
        f"{rng.choice(['a', 'b', '?'])},{rng.integers(10)},2020-01-0{rng.integers(1, 10)}"
        for _ in range(count)
    ]


def write(path, lines, header=HEADER):
    """Write a table."""
    Path(path).write_text("\n".join([header, *lines]) + "\n")


def write_inputs():
    """Write a small private table, its schema, and a workload."""
    write("t.csv", rows())
    Path("s.json").write_text(json.dumps(SCHEMA))
    Path("w.json").write_text(json.dumps({"version": 1, "parts": [{"ways": [1]}]}))


def drawn(count, seed, jobs=("a", "b", "?")):
    """Rows of the schema in which the job follows from the age, most of the time."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        age = rng.integers(10)
        job = jobs[age % len(jobs)] if rng.random() < 0.8 else rng.choice(jobs)
        lines.append(f"{job},{age},2020-01-0{rng.integers(1, 10)}")
    return lines


def write_compared():
    """Write a true table and a synthetic one like it."""
    for name, count, seed in (("t.csv", 400, 1), ("o.csv", 300, 2)):
        write(name, drawn(count, seed))


def write_persons():
    """Write three rows for each person."""
    lines = rows()
    write("t.csv", [f"n{k // 3},{line}" for k, line in enumerate(lines)], f"id,{HEADER}")
    Path("s.json").write_text(json.dumps({**SCHEMA, "person": "id"}))


def write_town():
    """Write a set of tables and its schema."""
    Path("town").mkdir()
    with closing(sqlite3.connect("town.db")) as database:
        for name, table in made_deep(300).items():
            table.to_csv(f"town/{name}.csv", index=False)
            table.to_sql(name, database, index=False)
    Path("tables.json").write_text(json.dumps(DEEP))
    for name, changes in (("rootless", {"keys": DEEP["keys"][1:]}), ("bad", {"tables": 3})):
        Path(f"{name}.json").write_text(json.dumps({**DEEP, **changes}))
    spoilt = {
        "orphans": lambda t: {**t, "persons": t["persons"].assign(home=987654321)},
        "twice": lambda t: {**t, "homes": pd.concat([t["homes"], t["homes"][:1]])},
        "keyless": lambda t: {**t, "persons": t["persons"].assign(home=None)},
        "renamed": lambda t: {**t, "trips": t["trips"].rename(columns={"person": "who"})},
        "less": lambda t: {name: t[name] for name in ("homes", "persons")},
    }
    for place, spoil in spoilt.items():
        Path(place).mkdir()
        for name, table in spoil(made_deep(30)).items():
            table.to_csv(f"{place}/{name}.csv", index=False)


def write_parts():
    """Write the rows of t.csv in three files, and in a database next to a private name."""
    frame = pd.read_csv("t.csv")
    Path("d").mkdir()
    frame[:100].to_csv("d/a.csv", index=False)
    frame[100:101].to_csv("d/b.csv.gz", index=False)
    frame[101:].to_parquet("d/c.parquet", index=False)
    with duckdb.connect("t.db") as connection:
        connection.register("frame", frame)
        connection.execute("CREATE TABLE people AS SELECT * FROM frame")
        connection.execute(f"CREATE TABLE names AS SELECT '{CANARY}' AS name")
    for place, name, content in (
        ("other", "d.csv", f"job,age,{CANARY}\na,1,x\n"),
        ("cell", "d.csv", f"{HEADER}\n{CANARY},1,2\n"),
        ("damaged", "d.parquet", "PAR1 and no more"),
        ("nested", "more/a.csv", ""),
        ("empty", ".a", ""),
    ):
        if place != "empty":
            shutil.copytree("d", place)
        Path(place, name).parent.mkdir(parents=True, exist_ok=True)
        Path(place, name).write_text(content)
    shutil.copytree("d", "double")
    Path("double/latest.csv").symlink_to("a.csv")
    Path("linked").symlink_to("d")


def write_bad():
    """Write files that are no tables."""
    row = b"a,1,2020-01-02\n"
    head = HEADER.encode() + b"\n"
    contents = {
        "nothing.csv": b"", "truncated.csv.gz": gzip.compress(head + row * 99)[:-9],
        "encoding.csv": head + b"\xff\xfe,1,2020-01-02\n", "nul.csv": head + b"a\0,1,2020-01-02\n",
        "bad.xlsx": b"a,b\n1,2\n", "bad.sqlite": b"a,b\n1,2\n", "bad.zip": b"PK\5\6" + bytes(18),
    }  # fmt: skip
    for name, content in contents.items():
        Path(name).write_bytes(content)
    Path("old.csv").write_text("kept")
    Path("old.html").write_text("kept")
    Path("page.zip").mkdir()
    np.save("wide.npy", np.ones((2, 4)))
    np.save("nan.npy", np.full((2, 10), np.nan))
    with closing(sqlite3.connect("d.db")) as database:
        pd.read_csv("t.csv").to_sql("t", database, index=False)


def write_proposed():
    """Write a table with a column of each type."""
    lines = []
    for i in range(200):
        level, step = ["low", "high", "medium", "?"][i % 4], [0.5, 1.0, 1.5][i % 3]
        town, flag = [CANARY, "x"][i % 2], ["True", "False"][i % 2]
        spent = 0 if i % 3 else i // 2
        more = f"2020-01-0{1 + i % 9},{7919 * i}"
        lines.append(f"{level},{town},{step},{i % 10},{spent},{flag},{more}")
    write("t.csv", lines, "level,town,step,count,spent,flag,day,id")


def review(left=1, rules=()):
    """Delete the review marks of p.json, but those of its first columns."""
    content = json.loads(Path("p.json").read_text())
    for column in content["columns"][left:]:
        column.pop("description", None)
    Path("p.json").write_text(json.dumps({**content, "description": "", "rules": rules}))


INPUTS = {
    "compared": write_compared, "persons": write_persons, "town": write_town,
    "parts": write_parts, "bad": write_bad, "proposed": write_proposed, "half reviewed": review,
    "reviewed": lambda: review(0),
}  # fmt: skip


def read_cases():
    """Return the lines of each case by the name of its file and its own."""
    found = {}
    for path in sorted(FOLDER.glob("*.txt")):
        for part in path.read_text(encoding="utf-8").split("## ")[1:]:
            name, _, text = part.partition("\n")
            found[f"{path.stem}: {name}"] = text
    return found


def write_cases(cases):
    """Store cases."""
    files = {}
    for name, text in cases.items():
        stem, _, title = name.partition(": ")
        files.setdefault(stem, []).append(f"## {title}\n{text}")
    for stem, parts in files.items():
        (FOLDER / f"{stem}.txt").write_text("".join(parts), encoding="utf-8")


def replay(text, run):
    """Do what a case says; return it with what is printed now, and the outcomes of its commands."""
    lines, outcomes = [], []
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        if mark in ("=", "<", "$"):
            lines.append(line)
        elif not line:
            lines.append("")
        if mark == "=":
            INPUTS[rest]()
        elif mark == "<":
            name, _, content = rest.partition(" ")
            Path(name).write_text(content.replace("\\n", "\n"))
        elif mark == "$":
            before = list_files()
            outcome = run(*shlex.split(rest))
            lines += show(outcome)
            outcomes.append((rest, outcome, list_files() == before))
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n\n", outcomes


def list_files():
    """Return all names in the working folder, with the sizes of files that are no ledger."""
    found = {str(path): path for path in Path().rglob("*") if path.suffix != ".lock"}
    return {
        name: bool(path.suffix) and path.stat().st_size
        for name, path in found.items() if not name.endswith(("-wal", "-shm"))
    }  # fmt: skip


def show(outcome):
    """Return the lines that stand for what a command did."""
    out, err = outcome.out, outcome.err
    if out.startswith("{"):
        out = "".join(f"{key}: {shorten(key, value)}\n" for key, value in json.loads(out).items())
    for pattern, stand_in in VARYING:
        out, err = pattern.sub(stand_in, out), pattern.sub(stand_in, err)
    lines = [f"    {line.rstrip()}".rstrip() for line in out.splitlines() if line.strip()]
    lines += [f"! {line}" for line in err.splitlines()]
    return [*lines, *([f"? {outcome.code}"] if outcome.code else [])]


def shorten(key, value):
    """Return the text of a field, without what varies."""
    text = json.dumps(_rounded(key, value), ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _rounded(key, value):
    if key in VARYING_FIELDS and value is not None:
        return "#"
    if isinstance(value, dict):
        return {name: _rounded(name, each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded("", each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
