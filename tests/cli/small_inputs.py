"""Small files that stand for much, each made in a few lines."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

SPACE = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
TEXTS = "application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
PLAIN = {"version": 1, "columns": [{"name": "a", "type": "categorical", "values": ["x"],
                                    "catch_all": "other"}]}  # fmt: skip


def write_all(folder: Path) -> dict[str, list[str]]:
    """Write every input into a folder; return by its name the arguments of `synthesize`."""
    (folder / "plain.json").write_text(json.dumps(PLAIN))
    plain = ["--schema", str(folder / "plain.json")]
    long_text = f'<row><c t="inlineStr"><is><t>{"A" * 1_000_000}'
    entity = f'<!DOCTYPE sst [<!ENTITY e "{"B" * 10_000_000}">]><sst {SPACE}>'
    books: dict[str, tuple[Iterable[str], str, Iterable[str]]] = {
        "20,000,000 empty cells in a row": (
            ["<row>", *["<c/>" * 100_000] * 200, "</row>"], "sharedStrings", ()
        ),
        "a text of 600 MB": (
            [long_text, *["A" * 1_000_000] * 599, "</t></is></c></row>"], "sharedStrings", ()
        ),
        "an entity of 10 MB, 88 times": (
            [], "sharedStrings", [entity, *["<si><t>" + "&e;" * 22 + "</t></si>"] * 4, "</sst>"]
        ),
        "shared texts in another folder": (
            [], "pivotCache/ss",
            [f"<sst {SPACE}>", *["<si><t>ab</t></si>" * 10_000] * 600, "</sst>"],
        ),
        "a cell in column XFD of 300,000 rows": (
            (f'<row><c t="inlineStr"><is><t>x</t></is></c><c r="XFD{k}"/></row>'
             for k in range(2, 300_002)), "sharedStrings", (),
        ),
    }  # fmt: skip
    found = {}
    for number, (name, (rows, part, texts)) in enumerate(books.items()):
        path = folder / f"{number}.xlsx"
        write_book(path, rows, f"xl/{part}.xml", texts)
        found[f"xlsx: {name}"] = [str(path), *plain]
    pq.write_table(
        pa.table({"a": ["x", "A" * 1_000_000_000]}), folder / "text.parquet", compression="zstd",
        use_dictionary=False, write_statistics=False,
    )  # fmt: skip
    found["Parquet: a text of 1 GB"] = [str(folder / "text.parquet"), *plain]
    with sqlite3.connect(folder / "view.sqlite") as file:
        file.execute(
            "create view v as with recursive n(a) as (select 1 union all select a + 1 from n) "
            "select a from n"
        )
    file.close()
    found["SQLite: a view without end"] = [f"{folder / 'view.sqlite'}::v", *plain]
    bins = [{"name": f"c{k}", "type": "numeric", "min": 0, "max": 1, "bins": 2**24}
            for k in range(3)]  # fmt: skip
    found["schema: 3 columns of 16,777,216 bins"] = _write_table(folder / "bins", bins, ["0.5"] * 3)
    ones = [{"name": f"c{k}", "type": "categorical", "values": ["x"]} for k in range(25)]
    workload = {"version": 1, "parts": [{"attributes": [[column["name"] for column in ones]]}]}
    (folder / "w.json").write_text(json.dumps(workload))
    found["workload: a marginal of 25 columns"] = [
        *_write_table(folder / "ones", ones, ["x"] * 25), "--workload", str(folder / "w.json")
    ]  # fmt: skip
    return found


def _write_table(path: Path, columns: list[dict[str, Any]], row: list[str]) -> list[str]:
    header = ",".join(column["name"] for column in columns)
    path.with_suffix(".csv").write_text(f"{header}\n{','.join(row)}\n")
    path.with_suffix(".json").write_text(json.dumps({"version": 1, "columns": columns}))
    return [str(path.with_suffix(".csv")), "--schema", str(path.with_suffix(".json"))]


def write_book(path: Path, rows: Iterable[str], part: str, texts: Iterable[str]) -> None:
    """Write a workbook with these rows, and a part of shared texts if there are any."""
    made = openpyxl.Workbook()
    made.active.append(["a"])
    made.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet, types, texts = "xl/worksheets/sheet1.xml", "[Content_Types].xml", list(texts)
    before, end = members.pop(sheet).split("</sheetData>")
    if texts:
        listed = f'<Override PartName="/{part}" ContentType="{TEXTS}"/></Types>'
        members[types] = members[types].replace("</Types>", listed)

    def sheet_parts() -> Iterator[str]:
        yield before
        yield from rows
        yield f"</sheetData>{end}"

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        for name, parts in ((sheet, sheet_parts()), (part, iter(texts)))[: 1 + bool(texts)]:
            with archive.open(name, "w", force_zip64=True) as member:
                for content in parts:
                    member.write(content.encode())
