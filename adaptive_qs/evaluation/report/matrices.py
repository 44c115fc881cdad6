"""Heat maps: association of both tables, and errors of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Domain
from adaptive_qs.evaluation.association import Association
from adaptive_qs.evaluation.marginals import CliqueError
from adaptive_qs.pages.charts import Cell, HeatMap, diverging_cell, sequential_cell

Matrix = NDArray[np.float64]
MOST_COLUMNS = 24
"""Rows and columns of a heat map."""
LEAST_TOP = 0.2
"""The darkest colour of a map of differences stands for at least this, so that noise is pale."""


def most_different(difference: Matrix, most: int = MOST_COLUMNS) -> list[int]:
    """The attributes with the largest values beside another one, in the schema's order."""
    absolute = np.nan_to_num(np.abs(difference))
    np.fill_diagonal(absolute, 0)
    worst = absolute.max(axis=1) if len(absolute) else absolute
    return sorted(np.argsort(-worst, kind="stable")[:most].tolist())


def association_maps(
    association: Association, matrices: tuple[Matrix, Matrix], measure: str, chosen: Sequence[int]
) -> list[HeatMap]:
    """True, synthetic, and the difference, for some attributes."""
    true, made = matrices
    difference = made - true
    off = ~np.eye(len(true), dtype=bool)
    top = max(LEAST_TOP, float(np.nanmax(np.abs(difference), where=off, initial=0)))
    return [
        _heat(f"{measure}, true table", true, association.names, chosen, 1.0),
        _heat(f"{measure}, synthetic table", made, association.names, chosen, 1.0),
        _heat(
            f"{measure}, synthetic less true",
            difference,
            association.names,
            chosen,
            top,
            signed=True,
        ),
    ]


def pair_errors(domain: Domain, cliques: Sequence[CliqueError]) -> Matrix:
    """For each two attributes the mean L1 error of the marginals that hold both; NaN if none."""
    total, number = np.zeros((2, len(domain), len(domain)))
    for clique in cliques:
        for i, j in combinations(domain.clique(clique.attributes), 2):
            total[i, j] += clique.l1
            number[i, j] += 1
    total, number = total + total.T, number + number.T
    return np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)


def error_map(domain: Domain, errors: Matrix, chosen: Sequence[int], caption: str) -> HeatMap:
    """Errors of pairs of some attributes."""
    shown = errors[np.ix_(chosen, chosen)]
    top = float(np.nanmax(shown)) if np.isfinite(shown).any() else 1.0
    return _heat(caption, errors, domain.names, chosen, top)


def _heat(
    caption: str,
    matrix: Matrix,
    names: Sequence[str],
    chosen: Sequence[int],
    top: float,
    signed: bool = False,
) -> HeatMap:
    cell_of = diverging_cell if signed else sequential_cell
    return HeatMap(
        caption,
        tuple(i + 1 for i in chosen),
        tuple(names[i] for i in chosen),
        tuple(
            tuple(Cell("") if i == j else cell_of(float(matrix[i, j]), top) for j in chosen)
            for i in chosen
        ),
    )
