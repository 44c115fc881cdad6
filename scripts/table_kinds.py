"""One made-up table of each kind that a synthesizer meets, for tests and benchmarks.

    weak        mixed columns, every pair dependent a little
    functional  columns that determine others: hierarchies, recodings, a column derived from two
    sequences   16 steps of 18 values with an absorbing end
    wide        110 attributes, few rows, latent classes
    tails       30 attributes of several hundred Zipf-distributed codes, correlated

Each function takes the number of rows and a seed and returns the same table every time.
:func:`bootstrap` and :func:`shuffled_columns` remake a given table without privacy, as floors, and
:func:`coded_table` reads a real one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from adaptive_qs.domain import Domain
from adaptive_qs.table.coded import CodedTable

Codes = NDArray[np.int64]


def coded_table(folder: Path) -> CodedTable:
    """A real table of codes: <name>.csv, or a .zip of it, with domain.json beside it in a folder of
    that name.

    Raises:
        OSError: a file is missing.
    """
    sizes = json.loads((folder / "domain.json").read_text())
    source = folder / f"{folder.name}.csv"
    frame = pd.read_csv(source if source.exists() else source.with_suffix(".zip"))
    return CodedTable.from_codes(Domain.from_sizes(sizes), [frame[c].to_numpy() for c in sizes])


def weak_dependence(rows: int = 50_000, seed: int = 0) -> CodedTable:
    """Twelve attributes of 2 to 60 values that share one weak common factor."""
    rng = np.random.default_rng(seed)
    sizes = (2, 2, 3, 4, 5, 6, 8, 10, 16, 25, 40, 60)
    common = rng.normal(size=rows)
    columns = {}
    for k, size in enumerate(sizes):
        strength = 0.25 + 0.15 * (k % 3)
        latent = strength * common + np.sqrt(1 - strength**2) * rng.normal(size=rows)
        columns[f"w{k}_{size}"] = (_binned(ndtr(latent), skewed(size, rng)), size)
    return _table(columns)


def functional_dependence(rows: int = 50_000, seed: int = 0) -> CodedTable:
    """Geography and occupation as nested codes, a recoded column, one derived from two others."""
    rng = np.random.default_rng(seed)
    districts, counties, states = 320, 64, 9
    county_of = refinement(districts, counties, rng)
    state_of = refinement(counties, states, rng)
    jobs, groups = 60, 8
    group_of = refinement(jobs, groups, rng)
    schooling, grades = 16, 5
    grade_of = np.sort(rng.integers(0, grades, schooling))
    district = rng.choice(districts, rows, p=skewed(districts, rng))
    state = state_of[county_of[district]]
    job = _shifted_choice(state, skewed(jobs, rng), rng)
    age = rng.choice(75, rows, p=skewed(75, rng))
    school = np.minimum((age // 6 + rng.integers(0, 8, rows)) * 3 // 4, schooling - 1)
    sex = rng.integers(0, 2, rows)
    columns = {
        "district": (district, districts),
        "county": (county_of[district], counties),
        "state": (state, states),
        "job": (job, jobs),
        "job_group": (group_of[job], groups),
        "age": (age, 75),
        "age_band": (age // 15, 5),
        "school": (school, schooling),
        "grade": (grade_of[school], grades),
        "sex": (sex, 2),
        "age_band_by_sex": (2 * (age // 15) + sex, 10),
    }
    return _table(columns)


END = 17
"""The absorbing value of :func:`sequences`."""


def sequences(rows: int = 100_000, seed: int = 0) -> CodedTable:
    """Sixteen steps of a Markov chain on 18 values, the last of which ends the sequence."""
    rng = np.random.default_rng(seed)
    steps, values = 16, 18
    transition = rng.dirichlet(np.full(values - 1, 0.15), size=values - 1)
    stop = rng.uniform(0.02, 0.35, size=values - 1)
    cdf = np.zeros((values, values))
    cdf[:END] = np.cumsum(
        np.column_stack([transition * (1 - stop)[:, None], stop[:, None]]), axis=1
    )
    cdf[END, END] = 1.0
    current = rng.choice(END, rows, p=skewed(END, rng))
    columns = {"step_1": (current, values)}
    for step in range(2, steps + 1):
        uniform = rng.random(rows)
        following = np.empty(rows, dtype=np.int64)
        for value in range(values):
            here = current == value
            following[here] = np.searchsorted(cdf[value], uniform[here], side="right")
        current = np.minimum(following, END)
        columns[f"step_{step}"] = (current, values)
    return _table(columns)


def many_attributes(rows: int = 19_434, seed: int = 0) -> CodedTable:
    """A survey: 110 attributes of 2 to 8 answers, independent given one of ten classes."""
    rng = np.random.default_rng(seed)
    classes, attributes = 10, 110
    member = rng.choice(classes, rows, p=skewed(classes, rng))
    columns = {}
    for k in range(attributes):
        size = int(rng.integers(2, 9))
        answers = rng.dirichlet(np.full(size, 0.6), size=classes)
        cdf = np.cumsum(answers, axis=1)[member]
        codes = (rng.random(rows)[:, None] >= cdf).sum(axis=1)
        columns[f"q{k}"] = (np.minimum(codes, size - 1), size)
    return _table(columns)


def long_tails(rows: int = 100_000, seed: int = 0) -> CodedTable:
    """Thirty code columns with Zipf frequencies; each follows the one before it."""
    rng = np.random.default_rng(seed)
    columns = {}
    latent = rng.normal(size=rows)
    for k in range(30):
        size = int(rng.integers(200, 700))
        latent = 0.8 * latent + 0.6 * rng.normal(size=rows)
        frequency = np.arange(1, size + 1) ** -rng.uniform(0.9, 1.3)
        rank = _binned(ndtr(latent), frequency / frequency.sum())
        columns[f"code_{k}"] = (rng.permutation(size)[rank], size)
    return _table(columns)


KINDS: dict[str, Callable[..., CodedTable]] = {
    "weak": weak_dependence,
    "functional": functional_dependence,
    "sequences": sequences,
    "wide": many_attributes,
    "tails": long_tails,
}
"""Every kind by its name: ``KINDS[name](rows=..., seed=...)``."""


def bootstrap(table: CodedTable, seed: int = 0) -> CodedTable:
    """As many rows as a table has, drawn from it with replacement: what sampling alone costs."""
    picked = np.random.default_rng(seed).integers(0, table.num_rows, table.num_rows)
    return CodedTable.from_codes(table.domain, [codes[picked] for codes in table.columns])


def shuffled_columns(table: CodedTable, seed: int = 0) -> CodedTable:
    """Every column shuffled independently: what independence alone costs."""
    rng = np.random.default_rng(seed)
    return CodedTable.from_codes(table.domain, [rng.permutation(c) for c in table.columns])


def _table(columns: dict[str, tuple[Codes, int]]) -> CodedTable:
    domain = Domain.from_sizes({name: size for name, (_, size) in columns.items()})
    return CodedTable.from_codes(domain, [codes for codes, _ in columns.values()])


def skewed(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Unequal probabilities, none of them tiny."""
    return 0.9 * rng.dirichlet(np.full(size, 0.8)) + 0.1 / size


def _binned(uniform: NDArray[np.float64], probabilities: NDArray[np.float64]) -> Codes:
    """Codes with these probabilities, increasing with a uniform variable."""
    codes = np.searchsorted(np.cumsum(probabilities), uniform, side="right")
    return np.minimum(codes, probabilities.size - 1)


def refinement(fine: int, coarse: int, rng: np.random.Generator) -> Codes:
    """Which coarse code each fine code belongs to; every coarse code has at least one."""
    extra = rng.integers(0, coarse, fine - coarse)
    return np.sort(np.concatenate([np.arange(coarse), extra]))


def _shifted_choice(
    by: Codes, probabilities: NDArray[np.float64], rng: np.random.Generator
) -> Codes:
    """Draws whose distribution is rotated by another code, hence depends on it."""
    drawn = rng.choice(probabilities.size, by.size, p=probabilities)
    return (drawn + 5 * by) % probabilities.size
