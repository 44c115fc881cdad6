"""How easily the code is read: figures taken from the code itself.

    python -m scripts.speed.house

The tests keep ceilings of these figures (``tests/scripts/test_house.py``).
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import grimp
import networkx as nx

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "adaptive_qs"
EXAMPLE = ROOT / "docs" / "example"
MODULES = sorted(PACKAGE.rglob("*.py"))
PHRASES = re.compile(
    r"\b(?:told|tells? of|so many|mends?|whoever|what there is to|those of|beside"
    r"|as far as|of theirs|by itself|at once|in words|doubts?|wanted|are those|is said to be|asked"
    r"|stands? against|comes? about|serves? for)\b",
    re.IGNORECASE,
)
"""Phrases that a reader has to read twice; each has a plainer word."""
LATE = {"scipy.optimize", "networkx", "scipy.fft", "sklearn", "jinja2"}
"""Packages that take long to import; they are left to the runs that need them."""
COMMANDS = {
    "synthesize": ["--out", "synthetic.csv"],
    "answer": ["--ways", "1,2", "--out", "answers.csv"],
}
"""Commands on a CSV file, whose modules and depth are counted, with the options of their own."""
WATCHED = """
import json, sys
package, out, *arguments = sys.argv[1:]
depths = {}

def watch(frame, event, _):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(package):
        return
    if code.co_name == "count" and "/table/" in code.co_filename:
        files = []
        while frame is not None:
            files.append(frame.f_code.co_filename)
            frame = frame.f_back
        depths["counting"] = len(files) - 1  # without this script
        depths["own"] = sum(file.startswith(package) for file in files)
        sys.setprofile(None)

from adaptive_qs.cli import main
sys.setprofile(watch)
code = main(arguments)
sys.setprofile(None)
with open(out, "w") as file:
    json.dump({"code": code, "loaded": list(sys.modules), **depths}, file)
"""
"""Runs a command, and writes what it loaded and how deep it was when it first counted rows."""


def sizes() -> dict[str, float]:
    """Modules of the package and their lines."""
    lines = [len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES]
    return {
        "modules": len(lines),
        "lines": sum(lines),
        "median lines": median(lines),
        "most lines": max(lines),
    }


@cache
def commands() -> dict[str, dict[str, Any]]:
    """For each command on a CSV file: the modules that it loads, and its call depth.

    The modules are names ("loaded") and the number of those of the package ("modules"). The depth
    is the number of frames from ``main`` to the first exact count of rows, with those of the
    library of the command line ("counting"), and without ("own").
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, str(EXAMPLE / "make_visits.py"), "--rows", "500")
        return {name: _watched(folder, name, *options) for name, options in COMMANDS.items()}


def _watched(folder: str, verb: str, *options: str) -> dict[str, Any]:
    data = ["visits.csv", "--schema", str(EXAMPLE / "schema.json")]
    budget = ["--epsilon", "1", "--delta", "1e-6"]
    _run(folder, "-c", WATCHED, str(PACKAGE), "found.json", verb, *data, *budget, *options)
    found: dict[str, Any] = json.loads((Path(folder) / "found.json").read_text())
    assert found.pop("code") == 0, f"{verb} failed"
    assert "counting" in found, f"{verb}: nothing was counted in table/: see WATCHED"
    found["modules"] = sum(name.split(".")[0] == "adaptive_qs" for name in found["loaded"])
    return found


def _run(folder: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module of the package."""
    return {module: ast.parse(module.read_text(encoding="utf-8")) for module in MODULES}


def column_types() -> dict[str, set[str]]:
    """The types of columns, with the names of their classes."""
    from adaptive_qs.table.columns import COLUMN_TYPES

    return {name: {column.__name__} for name, column in COLUMN_TYPES.items()}


def column_files() -> dict[str, int]:
    """For each type of column, the modules that name it or its classes: what another one touches.

    The modules that define its classes are among them.
    """
    words = [set(_words(tree)) for tree in trees().values()]
    return {
        name: sum(not found.isdisjoint({f'"{name}"', *classes}) for found in words)
        for name, classes in column_types().items()
    }


def _words(tree: ast.AST) -> Iterator[str]:
    """Names, imports and classes of a module, and its strings in quotation marks."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                yield word
            case ast.ClassDef(name=word):
                yield word
            case ast.Constant(value=str(word)):
                yield f'"{word}"'


def circles() -> list[list[str]]:
    """Modules that import each other, imports for type checkers included."""
    found = grimp.build_graph("adaptive_qs", cache_dir=None)
    graph = nx.DiGraph(
        (module, imported)
        for module in found.modules
        for imported in found.find_modules_directly_imported_by(module)
    )
    return sorted(sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1)


def pages() -> dict[str, str]:
    """Return the text of every page in `docs/`, by path."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in found}


def phrases() -> dict[str, list[str]]:
    """Return the phrases to replace of package, pages and README, by file."""
    sources = [*MODULES, *sorted(PACKAGE.rglob("*.html")), *sorted(PACKAGE.rglob("*.md"))]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sources}
    texts |= pages() | {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    return {name: PHRASES.findall(" ".join(text.split())) for name, text in texts.items()}


def figures() -> dict[str, float]:
    """All figures by name."""
    ran, named = commands(), column_files().values()
    return {
        **sizes(),
        **{f"files executed by {name}": found["modules"] for name, found in ran.items()},
        "call depth of answer until rows are counted": ran["answer"]["counting"],
        "frames of the package among them": ran["answer"]["own"],
        "files that name a type of column, at least": min(named),
        "files that name a type of column, at most": max(named),
        "import circles": len(circles()),
        "phrases to replace": sum(map(len, phrases().values())),
        "lines of pages": sum(len(read.splitlines()) for read in pages().values()),
    }


if __name__ == "__main__":
    for title, figure in figures().items():
        print(f"{title:<45} {figure:>8,g}")
    for circle in circles():
        print("circle:", ", ".join(circle))
    print("files that name a type of column:", column_files())
    for file, found in sorted(phrases().items(), key=lambda item: -len(item[1])):
        if found:
            print(f"{file}: {', '.join(found)}")
