"""The statement contradicts neither itself nor the accounting, and its page tells all of it."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from adaptive_qs.errors import InputError
from adaptive_qs.privacy.accounting import (
    compute_delta,
    compute_epsilon,
    compute_gaussian_delta,
    compute_mu,
)
from adaptive_qs.privacy.budget import LedgerPosition, float_above
from adaptive_qs.privacy.events import Cost, GaussianEvent, PartitionEvent, Purpose
from adaptive_qs.release.bundle import manifest_path, with_manifest
from adaptive_qs.release.facts import TABLES, list_facts, list_mechanisms
from adaptive_qs.release.page import statement_page
from adaptive_qs.release.statement import Manifest, package_version
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.table.files import NOT_PRIVATE, PRIVATE
from adaptive_qs.table.schema import Schema

from .examples import charges, schemas


def manifest_of(schema, events, **changes):
    cost = Cost.of(events)
    rho, delta = float_above(cost.rho), 1e-6
    content = {
        "stamp": PRIVATE,
        "rho": rho,
        "rho_spent": rho,
        "epsilon": compute_epsilon(rho, delta),
        "delta": delta + float_above(cost.delta),
        "delta_spent": float_above(cost.delta),
        "accountant": "zCDP",
        "mechanisms": list_mechanisms(events),
        "entropy": "operating system CSPRNG",
        "settings": {"reference": "product"},
        "watched_cells": 1,
        "most_rows": 9,
        "schema_fingerprint": schema.fingerprint,
        "facts": list_facts(events, schema, TABLES),
    }
    return Manifest(**content | changes)


@st.composite
def manifests(draw):
    schema = draw(schemas())
    return schema, manifest_of(schema, draw(charges(schema)))


@settings(max_examples=50, deadline=None)
@given(made=manifests())
def test_every_statement_comes_back_from_its_json_and_reads_the_same(made):
    _, manifest = made
    again = Manifest.model_validate(json.loads(manifest.to_json()))
    assert again == manifest
    assert again.to_json() == manifest.to_json()
    assert statement_page(again) == statement_page(manifest)


@settings(max_examples=50, deadline=None)
@given(made=manifests())
def test_the_page_tells_every_payment_and_what_is_not_covered(made):
    schema, manifest = made
    page = statement_page(manifest)
    rows = [line for line in page.splitlines() if line.startswith("| ")][2:]
    paid = [fact for fact in manifest.facts if fact.basis == "paid for"]
    assert len(rows) == len(paid) + 1
    for row, fact in zip(rows, paid):
        cells = row.replace(r"\|", "").split(" | ")
        assert cells[1].strip(" |") == f"{fact.rho:.6g}"
    for fact in manifest.facts:
        assert fact.fact in page
    drafted = bool(schema.open)
    assert ("Not covered by the promise" in page) == drafted
    assert page.splitlines()[2].startswith("**The promise does not cover") == drafted
    assert len(page.splitlines()) < 80 + 2 * len(paid)


BEFORE = GaussianEvent(Purpose.ROWS, (), 1, 1)
SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "age", "type": "integer", "min": 0, "max": 99},
            {"name": "job", "type": "categorical", "values": ["clerk", "cook"]},
        ],
    }
)
PLAIN = manifest_of(SCHEMA, [BEFORE])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stamp": NOT_PRIVATE}, "stamp"),
        ({"entropy": "insecure seed"}, "stamp"),
        ({"rho_spent": 0.4}, "add up"),
        ({"delta_spent": 1e-9}, "add up"),
        ({"facts": PLAIN.facts[1:-1] + (PLAIN.facts[-1],) * 2, "rho_spent": 0.6}, "add up"),
        ({"facts": [fact for fact in PLAIN.facts if fact.kind != "rows"]}, "add up"),
        ({"rho": 0.4}, "exceed"),
        ({"epsilon": PLAIN.epsilon * (1 - 1e-6)}, "implies"),
        ({"delta": PLAIN.delta * (1 - 1e-6)}, "implies"),
        ({"mu": 1.0}, "mu goes with"),
        ({"accountant": "Gaussian DP"}, "mu goes with"),
        ({"accountant": "Gaussian DP", "mu": 0.999}, "not that of the charges"),
        ({"accountant": "Gaussian DP", "mu": 2.0}, "implies"),
        ({"format_version": 2}, "format_version"),
        ({"note": "x"}, "note"),
        ({"delta": 1.0}, "delta"),
        ({"rho": math.inf}, "rho"),
    ],
)
def test_statements_that_contradict_themselves_are_refused(change, complaint):
    with pytest.raises(ValidationError, match=complaint):
        manifest_of(SCHEMA, [BEFORE], **change)


def test_the_share_of_delta_for_discoveries_counts():
    found = PartitionEvent(Purpose.VALUES, ("job",), 1, 40, Fraction(1, 1000))
    spent = float_above(Cost.of([BEFORE, found]).rho)
    epsilon = compute_epsilon(spent, 1e-6)
    stated = manifest_of(SCHEMA, [BEFORE, found], epsilon=epsilon, delta=1e-6 + 1e-3)
    page = statement_page(stated)
    assert "| 0.001 |" in page
    assert "| 0 |" in page
    assert "guarantee: 0.001-approximate rho-zCDP" in page
    with pytest.raises(ValidationError, match="implies"):
        manifest_of(SCHEMA, [BEFORE, found], epsilon=epsilon, delta=1e-3)
    with pytest.raises(ValidationError, match="implies"):
        manifest_of(SCHEMA, [BEFORE, found], epsilon=epsilon, delta=1e-6)


def test_gaussian_dp_is_stated_exactly():
    """With the share of δ by which discrete noise may be worse; not without it."""
    epsilon, mu = 1.5, 1.0
    exact = compute_gaussian_delta(mu, epsilon)
    claim = {"accountant": "Gaussian DP", "mu": mu, "epsilon": epsilon}
    stated = manifest_of(SCHEMA, [BEFORE], **claim, delta=exact * (1 + 2**-21))
    words = "mu-Gaussian DP with mu = 1 up to a share 2^-20 of delta, for delta of at least 1e-300"
    assert words in statement_page(stated)
    with pytest.raises(ValidationError, match="implies"):
        manifest_of(SCHEMA, [BEFORE], **claim, delta=exact)
    assert compute_gaussian_delta(mu, epsilon) < compute_delta(stated.rho, epsilon)


@settings(max_examples=100, deadline=None)
@given(
    budget=st.builds(dict, rho=st.floats(1e-12, 1e12))
    | st.builds(dict, epsilon=st.floats(1e-3, 1e3)),
    delta=st.floats(1e-20, 0.5),
)
@example(budget={"rho": 1e-12}, delta=0.5)
def test_every_budget_that_a_run_accepts_can_be_stated(budget, delta):
    target = PrivacyTarget.of(**budget, delta=delta)
    spent = GaussianEvent(Purpose.ROWS, (), 1, 1 / (Fraction(9, 5) * Fraction(target.rho)))
    figures = {"rho": target.rho, "epsilon": target.epsilon, "delta": target.delta}
    if target.gaussian:
        figures |= {"accountant": "Gaussian DP", "mu": compute_mu(target.rho)}
    assert statement_page(manifest_of(SCHEMA, [spent], **figures))


def test_names_cannot_leave_their_line_or_become_markdown():
    name = "a|b`*_<x>[y](z)#\n# Heading\u2028\u202e"
    schema = Schema.parse(
        {"version": 1, "columns": [{"name": name, "type": "boolean", "missing": [""]}]}
    )
    page = statement_page(manifest_of(schema, [GaussianEvent(Purpose.RESIDUAL, (name,), 1, 1)]))
    assert r"a\|b\`\*\_\<x\>\[y\](z)\#\\n\# Heading\\u2028\\u202e" in page
    assert all(line.isprintable() for line in page.splitlines())
    assert "\n# Heading" not in page


@pytest.mark.parametrize("unconnected", [(), ("a_b",), tuple(f"c{i}" for i in range(15))])
def test_the_page_says_what_comes_from_the_model_and_which_columns_are_unconnected(unconnected):
    page = statement_page(manifest_of(SCHEMA, [BEFORE], unconnected=unconnected))
    assert "that were not measured together come from the model" in page
    assert ("independent of all other columns in the tables" in page) == bool(unconnected)
    if unconnected:
        shown = (
            r"a\_b"
            if len(unconnected) == 1
            else f"{', '.join(unconnected[:12])} and 3 more columns"
        )
        assert page.count(f"no combination with them was measured: {shown}\n") == 1


def test_a_noise_seed_is_said_first_and_never_told():
    seeded = manifest_of(SCHEMA, [BEFORE], stamp=NOT_PRIVATE, entropy="insecure seed", settings={})
    page = statement_page(seeded)
    assert page.splitlines()[2].startswith("**NOT PRIVATE")
    assert "random bits: insecure seed" in page
    assert "NOT PRIVATE" not in statement_page(PLAIN)


def test_the_ledger_is_named():
    entry = LedgerPosition(ledger="0f" * 16, run=3, releases=41, hash="ab" * 32)
    page = statement_page(manifest_of(SCHEMA, [BEFORE], ledger=entry))
    kept = f"keeps the charges as the 41 releases of run 3, with hash {'ab' * 32}"
    assert f"ledger: {'0f' * 16} {kept}" in page
    with pytest.raises(ValidationError):
        LedgerPosition(ledger="../x", run=3, releases=41, hash="ab")


def test_versions_name_what_bytes_depend_on():
    assert set(PLAIN.versions) == {
        "adaptive-qs", "python", "numpy", "scipy", "numba", "llvmlite", "pyarrow", "jinja2",
        "markupsafe", "zlib", "processor",
    }  # fmt: skip
    assert PLAIN.versions["adaptive-qs"] == PLAIN.package_version == package_version()
    assert PLAIN.versions["numpy"] == np.__version__


def write_manifest(statement, table, **fields):
    with with_manifest(table) as write:
        write(statement, **fields)


def test_the_file_beside_a_table(tmp_path):
    table = tmp_path / "t.csv.gz"
    path = manifest_path(table)
    assert path == tmp_path / "t.csv.gz.manifest.json"
    write_manifest(PLAIN, table)
    assert Manifest.model_validate_json(path.read_bytes()) == PLAIN
    first = path.read_bytes()
    write_manifest(PLAIN, table)
    assert path.read_bytes() == first
    with pytest.raises(InputError, match="cannot be written"):
        write_manifest(PLAIN, tmp_path / "none" / "t.csv")
    write_manifest(PLAIN, table, sampling={"seed": 7, "rows": 3})
    assert json.loads(path.read_text())["sampling"] == {"seed": 7, "rows": 3}


def test_where_no_table_appears_no_statement_stays(tmp_path):
    table = tmp_path / "t.csv"

    def fail():
        with with_manifest(table) as write:
            write(PLAIN)
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert not any(tmp_path.iterdir())
    table.touch()
    with pytest.raises(MemoryError):
        fail()
    assert manifest_path(table).exists()
    table.unlink()
    stated = manifest_path(table).read_bytes()
    with pytest.raises(InputError, match="already exists"), with_manifest(table, False) as put:
        put(PLAIN, sampling={"seed": 7, "rows": 3})
    assert manifest_path(table).read_bytes() == stated, "it is of another run"
