"""Matrices of custom queries in files: .npy, or .csv of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.errors import ResourceExceeded, WorkloadError
from adaptive_qs.workload.matrix_queries import MAX_COEFFICIENTS

MAX_CSV_BYTES = 2**28
"""Largest CSV file of a matrix; a binary file holds as much in far fewer bytes."""

ROW_RANGE = 1e4
"""Largest ratio of the largest entries of two rows."""


def read_matrix(path: Path) -> NDArray[Any]:
    """The matrix in a file, one row for each query, checked for its size before it is read.

    Raises:
        WorkloadError: no such file, or none of this kind.
        ResourceExceeded: too large.
    """
    readers = {".npy": _read_npy, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise WorkloadError(f"{path}: is not a .npy or .csv file: save the matrix as one of these")
    try:
        matrix = readers[path.suffix.lower()](path)
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise WorkloadError(f"{path}: {reason}: check the path") from None
    _check_scales(path, matrix)
    return matrix


def _check_scales(path: Path, matrix: NDArray[Any]) -> None:
    """Refuse rows beside which others but zeros would pass for rounding errors."""
    if matrix.ndim != 2 or not matrix.any() or not np.isfinite(matrix).all():
        return  # refused elsewhere
    largest = np.abs(matrix.astype(np.float64)).max(axis=1)
    least = np.where(largest > 0, largest, np.inf)
    if largest.max() > ROW_RANGE * least.min():
        raise WorkloadError(
            f"{path}: the largest entries of rows {least.argmin() + 1:,} and "
            f"{largest.argmax() + 1:,} differ by more than a factor of {ROW_RANGE:,.0f}: scale the "
            "rows alike, and say with weights in parts of their own what matters more"
        )


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        raise WorkloadError(
            f"{path}: is not a complete .npy file of numbers: write it with numpy.save"
        ) from None
    if not isinstance(matrix, np.ndarray):
        matrix.close()
        raise WorkloadError(f"{path}: holds several arrays: save the matrix alone")
    if matrix.dtype.kind not in "biuf":
        raise WorkloadError(f"{path}: holds entries of type {matrix.dtype}: save real numbers")
    if matrix.size > MAX_COEFFICIENTS:
        raise ResourceExceeded(
            f"{path}: has {matrix.size:,} coefficients, more than {MAX_COEFFICIENTS:,}: "
            "ask for fewer queries"
        )
    return np.array(matrix)


def _read_csv(path: Path) -> NDArray[Any]:
    if path.stat().st_size > MAX_CSV_BYTES:
        raise ResourceExceeded(
            f"{path}: is larger than {MAX_CSV_BYTES >> 20} MiB: save the matrix as .npy"
        )
    try:
        with path.open(encoding="utf-8-sig") as lines:
            text = (line for line in lines if line.strip())
            rows = [_numbers(path, number, line) for number, line in enumerate(text, start=1)]
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: not UTF-8 text: save the file as UTF-8") from None
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise WorkloadError(
                f"{path}: row {number} has {len(row):,} numbers and row 1 has {len(rows[0]):,}: "
                "give every row one for each cell"
            )
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 0)


def _numbers(path: Path, number: int, line: str) -> NDArray[np.float64]:
    cells = line.strip().split(",")
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        raise WorkloadError(
            f"{path}: row {number} holds something that is not a number: "
            "give numbers between commas and no header"
        ) from None
