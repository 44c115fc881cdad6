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
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import dp_accounting as accounting
import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from .curves import KINDS, MUS
from .recompute import charged, cost

ORDERS = (1 + np.exp(np.arange(math.log(0.02), math.log(1e4), 4e-3))).tolist()
"""Rényi orders on a grid so fine that ε is at most 0.01 % above its infimum over all orders."""
INTERVAL = 1e-3
"""Steps to which privacy losses are rounded, up or down."""
SKEWS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Probabilities of the larger log ratio of a choice; the worst depends on all that is composed."""
ROUNDING = 1e-3
"""Share of ε by which a recomputed one may be above: the error of the accountants' grids."""
CLOSE = 0.95
"""Least share of the stated ε that a recomputed one has where the budget is spent: the filter takes
more for choices than their zCDP cost, and a run keeps what no measurement is worth."""


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
        found = accountant.get_epsilon(delta)
        return found * (1 - ROUNDING), found
    return tuple(
        max(composed(records, skew, pessimistic).get_epsilon_for_delta(delta) for skew in SKEWS)
        for pessimistic in (False, True)
    )  # type: ignore[return-value]


def event(record: Any) -> Any:
    """A charge as an event of dp_accounting."""
    if record["mechanism"] == "exponential":
        return accounting.ZCDpEvent(float(cost(record)))
    return accounting.GaussianDpEvent(1 / math.sqrt(2 * cost(record)))


def composed(records: Iterable[Any], skew: float, pessimistic: bool) -> Any:
    """The privacy loss distribution of all charges; noise together, choices one by one."""
    options = {
        "pessimistic_estimate": pessimistic, "value_discretization_interval": INTERVAL,
    }  # fmt: skip
    records = list(records)
    choices = [r for r in records if r["mechanism"] == "exponential"]
    squared = 2 * sum(cost(r) for r in records if r["mechanism"] != "exponential")
    noise = pld.from_gaussian_mechanism(
        1 / math.sqrt(squared), use_connect_dots=pessimistic, **options
    )
    parts = [
        pld.from_two_probability_mass_functions(*worst_choice(Fraction(r["epsilon"]), skew), **options)
        for r in choices
    ]
    return reduce(lambda one, other: one.compose(other), parts, noise)


def worst_choice(epsilon: Fraction, skew: float) -> tuple[dict[int, float], dict[int, float]]:
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
        "passed": most <= stated * (1 + ROUNDING) and least >= CLOSE * used * stated,
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
