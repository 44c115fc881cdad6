"""The ε of every kind of release, recomputed from its charges by the accountants of dp_accounting.

Nothing of the package computes here: charges are read as a reader of the release finds them, and
composed by a library that others wrote. Statements in zCDP are recomputed in Rényi DP. Statements
in Gaussian DP are recomputed with privacy loss distributions, where each choice by the exponential
mechanism stands for the worst pair of its range: two outcomes whose log ratios are ε apart.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import dp_accounting as accounting
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.ledger.entries import Total

from .curves import KINDS, MUS
from .paid import released_runs
from .recompute import charged, cost

STEP = 4e-3
ORDERS = (1 + np.exp(np.arange(math.log(0.02), math.log(1e4), STEP))).tolist()
"""Rényi orders α, in steps of ln(α − 1)."""
INTERVAL = 1e-3
"""Steps to which privacy losses are rounded, up for an upper and down for a lower bound; of ε where
that is below 1, and finer the more choices are composed."""
RATIO = 1.02
"""Ratio of successive ε of choices, to which they are rounded likewise."""
SKEWS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Probabilities of the larger log ratio of a choice; the worst depends on all that is composed."""
CLOSE = 0.99
"""Least share of the stated ε that is recomputed. The rest is what a run leaves unspent, and what
the filter takes for choices beyond their zCDP cost."""


def released(artefacts: Mapping[str, bytes]) -> tuple[Any, list[Any]]:
    """The statement of what a run published, and all of its charges."""
    if "statement of the answers" in artefacts:
        manifest = json.loads(artefacts["statement of the answers"])
        return manifest, charged(manifest)
    with zipfile.ZipFile(io.BytesIO(artefacts["release bundle"])) as archive:
        names = [name for name in archive.namelist() if name.endswith("manifest.json")]
        manifests = [json.loads(archive.read(name)) for name in names]
        parts = [json.loads(archive.read(name.replace("manifest", "ledger"))) for name in names]
    stated = {(m["epsilon"], m["delta"], m["accountant"]) for m in manifests}
    assert len(stated) == 1, "two related tables state different promises"
    return manifests[0], [event for part in parts for event in part["events"]]


def recomputed_epsilon(manifest: Any, records: Sequence[Any]) -> tuple[float, float]:
    """A lower and an upper bound of ε at the stated δ."""
    discovery = sum((Fraction(record.get("delta", 0)) for record in records), Fraction(0))
    delta = float(Fraction(manifest["delta"]) - discovery)
    if manifest["accountant"] == "zCDP":
        accountant = accounting.rdp.RdpAccountant(orders=ORDERS)
        for record in records:
            accountant.compose(event(record))
        found, order = accountant.get_epsilon_and_optimal_order(delta)
        # Between steps h of ln a the bound rises by at most h²/8 times its second derivative there,
        # which is below aρ + ln(1/δ)/a + 1.
        a, rho = order - 1, float(sum(map(cost, records)))
        return float(found - (a * rho - math.log(delta) / a + 1) * STEP**2 / 6), float(found)
    choices = sum(record["mechanism"] == "exponential" for record in records)
    step = INTERVAL * min(1.0, manifest["epsilon"]) * 4 / (4 + choices)
    lower, upper = (
        max(
            composed(records, skew, pessimistic, step).get_epsilon_for_delta(delta)
            for skew in SKEWS
        )
        for pessimistic in (False, True)
    )
    return lower, upper


def event(record: Any) -> Any:
    """A charge as an event of dp_accounting."""
    if record["mechanism"] == "exponential":
        return accounting.ZCDpEvent(float(cost(record)))
    return accounting.GaussianDpEvent(1 / math.sqrt(2 * cost(record)))


def composed(records: Iterable[Any], skew: float, pessimistic: bool, step: float) -> Any:
    """The privacy loss distribution of all charges: of noise together, and of all choices.

    Choices of nearly the same ε are composed as if they had the larger one, or the smaller one for
    a lower bound.
    """
    options = {"pessimistic_estimate": pessimistic, "value_discretization_interval": step}
    squared, choices = Fraction(0), Counter[int]()
    for record in records:
        if record["mechanism"] == "exponential":
            place = math.log(Fraction(record["epsilon"])) / math.log(RATIO)
            choices[math.ceil(place) if pessimistic else math.floor(place)] += 1
        else:
            squared += 2 * cost(record)
    noise = pld.from_gaussian_mechanism(
        1 / math.sqrt(squared), use_connect_dots=pessimistic, **options
    )
    parts = (
        pld.from_two_probability_mass_functions(
            *worst_choice(RATIO**place, skew), **options
        ).self_compose(number)
        for place, number in choices.items()
    )
    return reduce(lambda one, other: one.compose(other), parts, noise)


def worst_choice(epsilon: float, skew: float) -> tuple[dict[int, float], dict[int, float]]:
    """Log probabilities of two outcomes in two worlds, whose log ratios are ε apart."""
    span = math.exp(epsilon)
    low = 1 / (1 - skew + skew * span)
    return (
        {0: math.log1p(-skew), 1: math.log(skew)},
        {0: math.log1p(-skew) + math.log(low), 1: math.log(skew) + math.log(low * span)},
    )


def figures(manifest: Any, records: Sequence[Any]) -> dict[str, Any]:
    """What is stated and what was recomputed."""
    least, most = recomputed_epsilon(manifest, records)
    stated, used = manifest["epsilon"], float(sum(map(cost, records)) / Fraction(manifest["rho"]))
    return {
        "accountant": manifest["accountant"],
        "charges": len(records),
        "share of the budget": round(used, 5),
        "stated": stated,
        "recomputed": [round(least, 5), round(most, 5)],
        "passed": least <= stated and CLOSE * stated <= most <= (2 - CLOSE) * stated,
    }


def recompute_sample(epsilons: Sequence[float], folder: Path) -> dict[str, dict[str, Any]]:
    """Tables and answers of the shipped sample on one ledger, recomputed.

    Args:
        epsilons: of one table and one set of answers each; every second learns columns.
        folder: an empty one.
    """
    ledger = folder / "ledger"
    total = Total.from_parameters(rho=10.0 * len(epsilons), delta=1e-6, discovery_delta=1e-7)
    LedgerBook.create(ledger, total.limit, total.declared).close()
    return {
        f"sample, {run.kind}, epsilon {run.manifest['epsilon']:g}": figures(
            run.manifest, run.records
        )
        for run in released_runs([*epsilons], ledger)
    }


def recompute_kinds(
    seed: int, mus: Sequence[float] = MUS, kinds: Mapping[str, Callable] = KINDS
) -> dict[str, dict[str, Any]]:
    """A release of every kind at every budget, recomputed."""
    rng = np.random.default_rng(seed)
    return {
        f"{kind}, mu {mu:g}": figures(*released(make(rng, mu).run(0).artefacts))
        for kind, make in kinds.items()
        for mu in mus
    }
