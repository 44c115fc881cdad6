"""Columns of which no combination was measured: `synthesize` counts, names and lists them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adaptive_qs.cli.summary import Outcome
from adaptive_qs.release.alone import alone_columns
from adaptive_qs.release.page import release_page
from adaptive_qs.release.release import Release

NAMES = [f"c{i}" for i in range(9)]


@pytest.fixture
def wide(run):
    """The release of a table of nine columns, as it was measured."""
    Path("s.json").write_text(json.dumps(dict.fromkeys(NAMES, 2)))
    lines = [",".join(NAMES), *[",".join("01"[(i >> k) % 2] for k in range(9)) for i in range(512)]]
    Path("t.csv").write_text("\n".join(lines) + "\n")
    made = run("synthesize", "t.csv", "--schema", "s.json", "--epsilon", "5", "--release", "r.zip")
    assert made.code == 0, made
    return Release.load("r.zip")


def outcome(release, *combinations):
    """A run that measured all columns and these combinations."""
    singles = {c: e for c, e in release.estimates.items() if len(c) < 2}
    some = next(iter(singles.values()))
    cliques = [release.workload.domain.clique(names) for names in combinations]
    changed = replace(
        release,
        manifest=release.manifest.model_copy(update={"alone": None}),
        estimates={**singles, **dict.fromkeys(cliques, some)},
    )
    return Outcome(Path("t.csv"), Path("s.json"), None, Path("r.zip"), changed, 5, {}, None)


@pytest.mark.parametrize(
    ("measured", "alone", "row", "warning"),
    [
        ([], NAMES, "9 of 9 columns: c0, c1, c2, c3, c4, c5 and 3 more", "9 of 9 columns are"),
        ([("c0", "c1"), ("c2", "c3", "c4")], NAMES[5:], "4 of 9 columns: c5, c6, c7, c8: no", "4"),
        ([tuple(NAMES[:8])], ["c8"], "1 of 9 columns: c8: no combination", "1 of 9 columns is"),
    ],
)
def test_they_are_counted_in_a_warning_and_listed_for_scripts(wide, measured, alone, row, warning):
    found = outcome(wide, *measured)
    assert dict(found.lines())["alone"].startswith(row)
    assert found.warning.startswith(warning)
    assert "independent of all others at this budget: use coarser bins" in found.warning
    assert found.json()["alone"] == alone


def test_nothing_is_said_where_all_are_combined(wide):
    found = outcome(wide, tuple(NAMES))
    assert "alone" not in dict(found.lines())
    assert (found.warning, found.json()["alone"]) == (None, [])


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("ways", ["1", "2"])
def test_the_warning_comes_with_the_list_on_either_output(run, ways):
    run_of = ["synthesize", "t.csv", "--schema", "s.json", "--rho", "0.01", "--ways", ways]
    said = run(*run_of, "--insecure-seed", "1", "--release", "one.zip", "--json")
    listed = json.loads(said.out)["alone"]
    released = Release.load("one.zip")
    names = released.workload.domain.clique_names
    joined = {name for c in released.estimates if len(c) > 1 for name in names(c)}
    assert listed == ([] if ways == "1" else [name for name in NAMES if name not in joined])
    assert ("independent of all others" in said.err) == bool(listed)
    shown = run(*run_of, "--insecure-seed", "1", "--release", "two.zip")
    assert shown.err == said.err


@pytest.mark.parametrize("ways", ["1", "2"])
def test_a_constant_column_is_never_alone_and_the_page_says_the_same(run, ways):
    """At this budget no pair of nine columns is measured; one of them has one code."""
    sizes = {name: 1 if name == "c4" else 2 for name in NAMES}
    Path("s.json").write_text(json.dumps(sizes))
    cells = ["0" if name == "c4" else str(k % 2) for k, name in enumerate(NAMES)]
    Path("t.csv").write_text("\n".join([",".join(NAMES), *[",".join(cells)] * 64]) + "\n")
    options = ["--rho", "1e-6", "--ways", ways, "--insecure-seed", "1", "--release", "r.zip"]
    said = run("synthesize", "t.csv", "--schema", "s.json", *options, "--json")
    assert said.code == 0, said
    found = Release.load("r.zip")
    alone = json.loads(said.out)["alone"]
    assert alone == list(alone_columns(found))
    if ways == "1":
        assert alone == []
    else:
        assert alone
        assert "c4" not in alone
    assert ("No combination measured with" in release_page(found)) == bool(alone)
