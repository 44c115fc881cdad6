"""The statement as one page for people; the same statement gives the same text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from adaptive_qs.privacy.guard_rails import weaknesses
from adaptive_qs.release.fact import Fact
from adaptive_qs.release.manifest import Manifest
from adaptive_qs.release.statement import Statement

NAMED = 12
"""Columns that one line names; the JSON beside it names all."""
TELLING_EPSILON = 20
"""Beyond it e^ε says nothing to anybody."""

_HEADINGS = (
    ("NOT COVERED", "Not covered by the promise: taken from the data"),
    ("declared public", "Declared public: known without the rows"),
    ("post-processing", "Follows from the above, at no further cost"),
    ("not revealed", "Not revealed"),
)


def statement_page(statement: Statement) -> str:
    """The page, as Markdown."""
    return "\n".join(manifest_lines(statement)) + "\n"


def manifest_lines(statement: Statement) -> list[str]:
    """The lines of the page, as Markdown.

    They say what is promised and to whom, what tables know of how columns depend on each other,
    what was paid for what, what counts as public, what the promise rests on, and how to check the
    sums.
    """
    facts = statement.facts
    lines = ["# Privacy statement", ""]
    if statement.insecure:
        lines += [f"**{statement.stamp}.** Nothing below holds for whoever knows the seed.", ""]
    if statement.drafted:
        lines += [
            "**The promise does not cover what the schema tells: it was taken from the data.**",
            "",
        ]
    lines += ["## What is promised", "", *_promise(statement), ""]
    if isinstance(statement, Manifest):
        lines += ["## What the tables know", "", *_dependence(statement), ""]
    lines += ["## What was paid for", "", *_payments(statement), ""]
    for basis, heading in _HEADINGS:
        found = [fact for fact in facts if fact.basis == basis]
        if found:
            lines += [f"## {heading}", "", *(f"- {_about(fact)}" for fact in found), ""]
    lines += ["## What the promise rests on", "", *_threat_model(statement), ""]
    lines += ["## How to check it", "", *_checks(statement), ""]
    return [*lines, "## How it was made", "", *_making(statement)]


def _promise(s: Statement) -> list[str]:
    factor = f" = {math.exp(s.epsilon):.4g}" if s.epsilon <= TELLING_EPSILON else ""
    return [
        "Whatever is concluded from this release would have been concluded without any given row, "
        "and with one more, with almost the same probability: the two differ by at most a factor "
        f"of e^{s.epsilon:.4g}{factor}, and by {s.delta:g} beyond it.",
        "",
        f"- protected: {s.unit}; neighbouring tables: {s.neighbours}",
        f"- guarantee: {s.guarantee}",
        f"- noise: {', '.join(s.mechanisms)}; random bits: {s.entropy}",
        f"- sampling: {s.sampling_seeds}",
        *(f"- **little is promised:** {text}" for text in weaknesses(s.epsilon, s.delta)),
    ]


def _dependence(s: Manifest) -> list[str]:
    lines = [
        "Which combinations of columns were measured is known: page.html of the release bundle "
        "lists them. How columns depend on each other that were not measured together comes from "
        "the model, mostly through columns that were measured with both. Such a relation may be "
        "wrong in either direction: lost, or there in the tables and not in the private one.",
    ]
    if s.alone:
        lines += [
            "",
            "- independent of all other columns in the tables, since no combination with them was "
            f"measured: {_named(s.alone)}",
        ]
    return lines


def _payments(s: Statement) -> list[str]:
    with_delta = s.delta_spent > 0
    delta = ["delta"] if with_delta else []
    rows = [
        [
            _about(fact), f"{fact.rho:.6g}", f"{fact.rho / s.rho_spent:.2%}",
            *([f"{fact.delta:.3g}"] if with_delta else []),
        ]
        for fact in s.facts
        if fact.basis == "paid for"
    ]  # fmt: skip
    total = ["all", f"{s.rho_spent:.6g}", "100.00%"]
    total += [f"{s.delta_spent:.3g}"] if with_delta else []
    return [
        *_table(["learnt from the rows, with noise", "rho", "share", *delta], [*rows, total]),
        "",
        f"The budget was rho = {s.rho:.6g}; it was never exceeded.",
    ]


def _threat_model(s: Statement) -> list[str]:
    model = s.threat_model
    return [
        *(f"- holds against: {text}" for text in model.protects_against),
        *(f"- trusts: {text}" for text in model.trusted),
        *(f"- leaves out: {text}" for text in model.excluded),
    ]


def _checks(s: Statement) -> list[str]:
    lines = [
        f"Every charge stands in {s.charges_in}, exactly. Discrete Gaussian noise costs "
        "rho = squared_sensitivity / (2 noise_variance), a choice by the exponential mechanism "
        "epsilon² / 8, discovering values 1 / (2 noise_variance) and its delta. Rounded up to "
        "units of 2^-60 rho and 2^-100 delta one by one, the charges add up to the rho_units and "
        "delta_units of the facts in the manifest, and these to no more than the budget.",
    ]
    if s.ledger is not None:
        place = s.ledger
        lines.append(
            f"The owner's ledger {place.ledger} keeps them as the {place.releases} releases of run "
            f"{place.run}, with hash {place.hash}: `adaptive-qs ledger verify --release` compares."
        )
    return lines


def _making(s: Statement) -> list[str]:
    return [
        f"- versions: {_pairs(s.versions)}",
        f"- settings: {_pairs(s.settings)}",
        f"- schema: SHA-256 {s.schema_fingerprint}",
    ]


def _pairs(content: dict[str, Any]) -> str:
    return ", ".join(f"{_plain(key)} {_plain(str(value))}" for key, value in content.items())


def _about(fact: Fact) -> str:
    names = _named(fact.columns)
    return f"{names}: {_plain(fact.fact)}" if names else _plain(fact.fact)


def _named(columns: Sequence[str]) -> str:
    names = ", ".join(map(_plain, columns[:NAMED]))
    if len(columns) > NAMED:
        names += f" and {len(columns) - NAMED:,} more columns"
    return names


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in header[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def _plain(text: str) -> str:
    """The text on one line, with nothing in it that Markdown would take for its own."""
    shown = text if text.isprintable() else text.encode("unicode_escape").decode()
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", shown)
