"""One sentence says what is promised, wherever it is said: also where values were discovered."""

import json
import re
import zipfile
from html import unescape
from pathlib import Path

import pytest

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "job", "type": "categorical", "private_values": 4, "catch_all": "other"},
        {"name": "age", "type": "integer", "min": 0, "max": 9},
    ],
}
BUDGET = ["--rho", "0.5", "--delta", "1e-6"]
PLAIN = re.compile(r"(?<!approximate rho-)(?<!approximate )zCDP with|\(zCDP\)")
"""Where zCDP itself is claimed to hold."""


@pytest.fixture
def discovered(run):
    Path("p.json").write_text(json.dumps(SCHEMA))
    Path("p.csv").write_text("job,age\n" + "".join(f"{'ab'[i % 2]},{i % 10}\n" for i in range(400)))
    assert run("ledger", "create", "--ledger", "l", "--rho", 4, "--delta", "1e-6",
               "--discovery-delta", "9e-7").code == 0  # fmt: skip
    return run


@pytest.mark.parametrize("ledger", [[], ["--ledger", "l"]])
def test_a_run_that_discovers_values_claims_no_plain_zcdp(discovered, ledger):
    run = discovered
    command = ["synthesize", "p.csv", "--schema", "p.json", *BUDGET, *ledger]
    said = run(*command, "--out", "o.csv", "--release", "r.zip")
    assert said.code == 0, said
    with zipfile.ZipFile("r.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()[:3]}
    manifest = json.loads(texts["manifest.json"])
    sentence = manifest["guarantee"]
    assert re.match(r"\S+-approximate rho-zCDP with rho = 0\.5, which implies", sentence)
    assert manifest["delta_spent"] > 0
    assert f"- guarantee: {sentence}\n" in texts["statement.md"]
    assert f"<li>Guarantee: {sentence}.</li>" in unescape(texts["page.html"])
    assert json.loads(Path("o.csv.manifest.json").read_text())["guarantee"] == sentence
    report = run("evaluate", "p.csv", "o.csv", "--schema", "r.zip", "--report", "e.html",
                 "--no-models")  # fmt: skip
    assert report.code == 0, report
    assert f"<p>Guarantee: {sentence}." in unescape(Path("e.html").read_text())
    shown = [*texts.values(), said.out, Path("e.html").read_text()]
    if ledger:
        shown.append(run("ledger", "show", *ledger).out)
    for text in shown:
        assert "approximate" in text
        assert not PLAIN.search(text), PLAIN.search(text)


def test_answers_with_discovered_values_claim_no_plain_zcdp(discovered):
    said = discovered("answer", "p.csv", "--schema", "p.json", *BUDGET, "--out", "a.csv")
    assert said.code == 0, said
    sentence = json.loads(Path("a.csv.manifest.json").read_text())["guarantee"]
    assert re.match(r"\S+-approximate rho-zCDP with", sentence)
    assert "-approximate zCDP)" in said.out
    assert not PLAIN.search(said.out)


def test_without_discovery_plain_zcdp_is_claimed(run):
    said = run("synthesize", "t.csv", "--schema", "s.json", *BUDGET, "--release", "r.zip")
    assert "rho 0.5 (zCDP)" in said.out
    with zipfile.ZipFile("r.zip") as archive:
        statement = archive.read("statement.md").decode()
    assert "guarantee: rho-zCDP with rho = 0.5" in statement
    assert PLAIN.search(said.out)
    assert re.search("(?<!approximate )rho-zCDP with", statement)
    assert "approximate zCDP" not in statement
