"""What a release cost, recomputed from its files alone; nothing of the package is imported.

Sizes come from the schema's JSON, sensitivities from sizes and columns, precisions from charges.
Costs are added as fractions and compared with the budget without any tolerance.
"""

import json
import math
import zipfile
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

LARGEST_SCALED = 2**20
PERIODS = {
    "year": "Y", "quarter": "Q", "month": "M", "week": "W-SUN", "day": "D", "hour": "h",
    "minute": "min",
}  # fmt: skip
DEFAULT_PERIOD = {"date": "day", "datetime": "hour"}


def cost(record) -> Fraction:
    """ρ of one record of a transcript. Bun and Steinke 2016, Proposition 1.6; Cesar and Rogers."""
    match record:
        case {"mechanism": "discrete gaussian"}:
            squared = Fraction(record["squared_sensitivity"])
            return squared / (2 * Fraction(record["noise_variance"]))
        case {"mechanism": "exponential"}:
            return Fraction(record["epsilon"]) ** 2 / 8
        case {"mechanism": "partition selection"}:
            return record["rows"] ** 2 / (2 * Fraction(record["noise_variance"]))
    raise AssertionError(f"unknown mechanism {record['mechanism']!r}")


def filter_left(rho, records) -> Decimal:
    """What the filter of Gaussian DP with μ² = 2ρ has left, to 60 digits; below 0 if it refuses.

    Noise of variance σ² counts as continuous noise of variance σ² − 9. A choice of cost s leaves of
    a remaining R the larger V with V² = R(V − s).
    """
    with localcontext(prec=60):
        left = decimal(Fraction(rho))
        for record in records:
            price = cost(record)
            if record["mechanism"] == "exponential":
                part = 1 - 4 * decimal(price) / left
                left = left * (1 + part.sqrt()) / 2 if part >= 0 else Decimal(-1)
            else:
                variance = Fraction(record["noise_variance"])
                narrower = variance - 9
                left = left - decimal(price * variance / narrower) if narrower > 0 else Decimal(-1)
            if left < 0:
                break
        return left


def decimal(number: Fraction) -> Decimal:
    """To the digits of the context."""
    return Decimal(number.numerator) / Decimal(number.denominator)


def total_cost(transcript) -> Fraction:
    """Σρ of a transcript, exactly."""
    return sum(map(cost, transcript["events"]), Fraction(0))


class Units(NamedTuple):
    """A cost in whole units of 2⁻⁶⁰ ρ and 2⁻¹⁰⁰ δ."""

    rho: int = 0
    delta: int = 0

    @classmethod
    def read(cls, fields):
        """The cost that an object of JSON states."""
        return cls(fields["rho_units"], fields["delta_units"])

    @classmethod
    def sum(cls, costs):
        """All together."""
        return cls(*map(sum, zip(cls(), *costs)))

    def within(self, limit) -> bool:
        """Whether no part exceeds that of another cost."""
        return self.rho <= limit.rho and self.delta <= limit.delta


def units(record) -> Units:
    """The cost of one record, each part rounded up."""
    delta = Fraction(record.get("delta", 0))
    return Units(math.ceil(cost(record) * 2**60), math.ceil(delta * 2**100))


def column_size(column) -> int:
    """Number of codes of a column of a schema file."""
    match column["type"]:
        case "categorical":
            values = column["values"]
            catch_all = column.get("catch_all")
            size = len(values) + (catch_all is not None and catch_all not in values)
        case "boolean":
            size = 2
        case "integer" | "numeric" if "bins" in column:
            size = column["bins"]
        case "integer" if "bin_starts" in column:
            size = len(column["bin_starts"])
        case "integer":
            size = column["max"] - column["min"] + 1
        case "numeric":
            size = len(column["edges"]) - 1
        case "date" | "datetime" as kind:
            frequency = PERIODS[column.get("granularity", DEFAULT_PERIOD[kind])]
            first, last = (pd.Period(column[end], frequency) for end in ("min", "max"))
            size = (last - first).n + 1
    return size + bool(column.get("missing"))


class Released:
    """The parts of a release bundle that say what was measured and what was paid."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as archive:
            read = {name: json.loads(archive.read(f"{name}.json")) for name in
                    ("manifest", "schema", "ledger", "record")}  # fmt: skip
        self.manifest, self.transcript, self.record = (
            read["manifest"], read["ledger"], read["record"]
        )  # fmt: skip
        self.sizes = {column["name"]: column_size(column) for column in read["schema"]["columns"]}
        self.group = group(self.manifest)
        self.learnt = {c["name"] for c in read["schema"]["columns"] if "learnt" in c}
        self.counted = {c["name"] for c in read["schema"]["columns"] if "counted" in c}
        self.levels = {name: [tuple(range(size))] for name, size in self.sizes.items()}
        for level in self.record["levels"]:
            self.levels[level["column"]].append(tuple(level["groups"]))
        self.strategies = {
            one["column"]: one["queries"] for one in self.record.get("strategies", ())
        }
        self.selections = []
        self.rounds = list(zip(self.record["rounds"], self.courses()))
        # Rounds without a marginal sum, for two columns, products of signs of their codes.
        self.looks = {
            id(event) for past, course in self.rounds if not past["clique"] for event in course
        }
        self.measured = {
            id(event): tuple(zip(names, groups))
            for past, course in self.rounds
            for event, (names, groups, _) in zip(course, past["noise_variances"])
            if event["columns"] == names
        }

    def courses(self):
        """The charges of each round: of those before the first choice, the last ones before the
        first selection; of a chosen one, those after its selection, up to the next one (a choice
        of nothing has none, and is no round); of those after the last choice, the last of all."""
        events, rounds = self.transcript["events"], self.record["rounds"]
        starts = [k for k, event in enumerate(events) if event["mechanism"] == "exponential"]
        chosen = [k for k, past in enumerate(rounds) if past["rho_selecting"]]
        first, last = (chosen[0], chosen[-1] + 1) if chosen else (0, 0)
        assert chosen == [*range(first, last)]

        def without_choice(some, end):
            """Charges of rounds, the last of which ends there."""
            begin = end - sum(len(past["noise_variances"]) for past in some)
            for past in some:
                yield events[begin : (begin := begin + len(past["noise_variances"]))]

        closed = [*without_choice(rounds[last:], len(events))]
        yield from without_choice(rounds[:first], min([*starts, len(events)]))
        for start, end in zip(starts, [*starts[1:], len(events) - sum(map(len, closed))]):
            if course := events[start + 1 : end]:
                self.selections.append(events[start])
                yield course
        yield from closed

    def residual(self, event):
        """Attributes of the residual that a charge is about, each with how many codes or groups it
        has; None where it is about none. Before the first round these are codes."""
        names = event["columns"]
        if event["purpose"] not in ("rows", "residual") or not self.sizes.keys() >= set(names):
            return None
        return self.measured.get(id(event), tuple((name, self.sizes[name]) for name in names))

    def children(self, residual) -> list[int]:
        """For each attribute of a residual, the most of its codes or groups that are one at the
        next coarser level: all of them, where there is none, and of a single column."""
        most = []
        for name, number in residual:
            levels = self.levels[name]
            (at,) = (k for k, level in enumerate(levels) if max(level) + 1 == number)
            if len(residual) == 1 or at == len(levels) - 1:
                most.append(number)
                continue
            inside = {}
            for fine, coarse in zip(levels[at], levels[at + 1]):
                inside.setdefault(coarse, set()).add(fine)
            assert len(set().union(*inside.values())) == sum(map(len, inside.values()))
            most.append(max(map(len, inside.values())))
        return most

    def learns(self, event):
        """Whether a charge is about bins or frequent values that are noted as learnt."""
        noted = {"bins": self.learnt, "heaps": self.counted}
        return event["purpose"] in noted and noted[event["purpose"]] >= set(event["columns"])

    def by_strategy(self, residual) -> bool:
        """Whether a residual was measured by integer queries that the release holds."""
        return len(residual) == 1 and residual[0][0] in self.strategies

    def squared_scale(self, event) -> Fraction:
        """By what the noise variance of the values of a residual is divided in an estimate, on
        average over its cells: 0 where it was charged for another sensitivity.

        Values are cells times their number, or answers to a strategy; a power of two that all of
        them were multiplied by raises their squared sensitivity by its square.
        """
        residual = self.residual(event)
        children = self.children(residual)
        cells = math.prod(children)
        scaled = Fraction(cells**2 if cells <= LARGEST_SCALED else 1)
        squared = math.prod(n * (n - 1) for n in children) if cells <= LARGEST_SCALED else 1
        least, group = min(children, default=0), self.group
        replaced = children and self.manifest["protects"]["neighbours"] == "replace"
        if replaced:
            group //= 2  # rows that each are another one's
            squared *= Fraction(2 * least, least - 1) if cells <= LARGEST_SCALED else 2
        if id(event) in self.looks:
            scaled, squared = Fraction(1), 4 if replaced else 1
        if self.by_strategy(residual):
            (n,) = children
            queries = self.strategies[residual[0][0]]
            assert all(len(row) == n and not sum(row) for row in queries)
            columns = list(zip(*queries))
            others = columns if replaced else [(0,) * len(queries)]
            squared = max(
                sum((x - y) ** 2 for x, y in zip(one, other)) for one in columns for other in others
            )
            inverse = np.linalg.pinv(np.array(queries, dtype=float))
            scaled = Fraction((n - 1) / float((inverse**2).sum()))
        more = Fraction(event["squared_sensitivity"]) / (squared * group**2)
        factor = math.isqrt(more.numerator)
        if more.denominator > 1 or factor**2 != more or factor.bit_count() != 1:
            return Fraction(0)
        return scaled * factor**2


def group(manifest) -> int:
    """Rows by which the tables that were measured differ, for neighbours of the kind stated."""
    unit = manifest["protects"]
    return unit["rows"] * {"add-remove": 1, "replace": 2}[unit["neighbours"]]


def name_of(record) -> str:
    """A charge in words."""
    return " ".join([record["purpose"], *record["columns"]])


def passing_chance(noise_variance: Fraction, threshold: int, rows: int = 1) -> float:
    """P[rows + noise ≥ threshold], summed over the discrete Gaussian."""
    variance = float(noise_variance)
    reach = math.ceil(40 * math.sqrt(variance)) + threshold
    weights = [math.exp(-(y * y) / (2 * variance)) for y in range(reach + 1)]
    return math.fsum(weights[threshold - rows :]) / (2 * math.fsum(weights) - 1)


def problems(path) -> list[str]:
    """Whatever in a release bundle was not paid for, or not as much as it should be."""
    release = Released(path)
    events = release.transcript["events"]
    found = statement_problems(release.manifest, events)
    found += filter_problems(release.manifest, events)
    found += sensitivity_problems(release)
    found += course_problems(release)
    return found + precision_problems(release)


def charged(manifest) -> list:
    """Every charge of the manifest beside answers, equal ones with the columns of the first."""
    return [some["charge"] for some in manifest["charges"] for _ in range(some["times"])]


def answers_problems(path) -> list[str]:
    """Whatever the manifest beside answers states of their cost and its charges do not bear out."""
    manifest = json.loads(Path(path).read_text(encoding="utf-8"))
    if any(type(some["times"]) is not int or some["times"] < 1 for some in manifest["charges"]):
        return ["a charge was not made a whole number of times"]
    found = statement_problems(manifest, charged(manifest))
    charges = [some["charge"] for some in manifest["charges"]]
    return found + threshold_problems(charges, group(manifest))


def statement_problems(manifest, records) -> list[str]:
    """What a manifest states of its cost and its budget, compared with its charges."""
    found = []
    exact = sum(map(cost, records), Fraction(0))
    total = Units.sum(map(units, records))
    spent, budget = Fraction(manifest["rho_spent"]), Fraction(manifest["rho"])
    if not exact <= Fraction(total.rho, 2**60) <= budget:
        found.append("the charges exceed the budget")
    if not Fraction(total.rho, 2**60) <= spent <= budget:
        found.append("the manifest says another cost")
    share = Fraction(total.delta, 2**100)
    if not share <= Fraction(manifest["delta_spent"]) <= Fraction(manifest["delta"]):
        found.append("the manifest says another share of delta")
    if Units.sum(map(Units.read, manifest["facts"])) != total:
        found.append("the facts do not add up to the charges")
    answers = manifest.get("kind") != "tables"
    if manifest["mu"] is not None and (
        2 * exact > Fraction(manifest["mu"]) ** 2 or (share and answers)
    ):
        found.append("mu is smaller than that of the charges")
    return found


def filter_problems(manifest, records) -> list[str]:
    """Charges of tables that are not Gaussian DP with the μ that is stated."""
    mu = manifest["mu"]
    if (mu is None) == (manifest["accountant"] == "Gaussian DP"):
        return ["the accountant is not that of mu"]
    if mu is None or filter_left(Fraction(mu) ** 2 / 2, records) >= 0:
        return []
    return ["the charges in their order exceed mu"]


def threshold_problems(records, rows) -> list[str]:
    """Discoveries that find values of so many rows more often than their share of δ."""
    return [
        f"{name_of(record)}: a value of one row passes too often"
        for record in records
        if record["mechanism"] == "partition selection"
        and (
            record["rows"] != rows
            or rows * passing_chance(Fraction(record["noise_variance"]), record["threshold"], rows)
            > Fraction(record["delta"])
        )
    ]


def sensitivity_problems(release) -> list[str]:
    """Charges of residuals for a smaller sensitivity than follows from the sizes.

    Releases from which bins are learnt have sensitivities of their own, which replays check.
    """
    found = threshold_problems(release.transcript["events"], release.group)
    for event in release.transcript["events"]:
        if event["mechanism"] == "discrete gaussian" and not release.learns(event):
            names = release.residual(event)
            if names is None:
                found.append(f"{name_of(event)}: measures nothing that is known")
            elif not release.squared_scale(event):
                found.append(f"{name_of(event)}: charged for too small a sensitivity")
    return found


def course_problems(release) -> list[str]:
    """Rounds whose selection or measurements are not among the charges, in order."""
    selections = release.selections
    chosen = [past for past in release.record["rounds"] if past["rho_selecting"]]
    if len(selections) != len(chosen):
        return ["there are not as many selections as rounds that chose"]
    found = []
    for selection, past in zip(selections, chosen):
        if not math.isclose(float(cost(selection)), past["rho_selecting"], rel_tol=1e-9):
            found.append("a selection is charged at another price")
    for past, course in release.rounds:
        paid = {
            release.residual(event): Fraction(event["noise_variance"]) / scale
            for event in course
            if (scale := release.squared_scale(event))
        }
        measured = {
            tuple(zip(names, groups)): Fraction(variance)
            for names, groups, variance in past["noise_variances"]
        }
        for residual in filter(release.by_strategy, paid.keys() & measured.keys()):
            if math.isclose(paid[residual], measured[residual], rel_tol=1e-9):
                paid[residual] = measured[residual]  # a pseudo-inverse is not exact
        if paid != measured:
            found.append("a round measured something else than was charged")
    return found


def precision_problems(release) -> list[str]:
    """Estimates that are more precise than the charges for them allow."""
    paid = {}
    for event in release.transcript["events"]:
        if event["mechanism"] == "discrete gaussian" and id(event) not in release.looks:
            names = release.residual(event)
            if names is not None:
                precision = release.squared_scale(event) / Fraction(event["noise_variance"])
                paid[names] = paid.get(names, 0) + precision
    found = []
    for estimate in release.record["residuals"]:
        measured = tuple(zip(estimate["attributes"], estimate["groups"]))
        if not math.isclose(estimate["precision"], paid.get(measured, 0), rel_tol=1e-9):
            names = " x ".join(estimate["attributes"])
            found.append(f"{names or 'total'}: another precision than was paid for")
    return found
