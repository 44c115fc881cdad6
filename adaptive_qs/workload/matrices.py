"""Linear counting queries, those known by their coefficients, and the files that users give."""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_qs.errors import ResourceExceeded, WorkloadError

Array = NDArray[np.float64]


class Queries:
    """Linear counting queries Q (m, N) over the N = Πshape cells of some attributes.

    A family covers one attribute (prefix, range, ...) or several together (affine, ...). It is a
    small frozen value: equal queries compare equal and hash equal, so that equal problems are
    solved once. Where there is a closed form, the matrix is not made.
    """

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]:
            """Sizes n_i of the attributes covered, in order."""

    @cached_property
    def size(self) -> int:
        """Number of cells N."""
        return math.prod(self.shape)

    @property
    def num_queries(self) -> int:
        """Number of queries m (exact, never overflows)."""
        raise NotImplementedError

    @property
    def integral(self) -> bool:
        """Whether every coefficient is an integer."""
        return True

    @property
    def coefficients(self) -> NDArray[Any]:
        """Q, shape (m, N), of any numeric type, rows as :meth:`answer` has them; read only."""
        return self.answer(np.eye(self.size).reshape(*self.shape, self.size))

    def matrix(self) -> Array:
        """Return Q in floating point, a copy."""
        return self.coefficients.astype(np.float64)

    def gram(self) -> Array:
        """Return QᵀQ, shape (N, N)."""
        raise NotImplementedError

    def circulant(self) -> Array | None:
        """Return the first row of QᵀQ where that is a circulant matrix, shape (n,), else None."""
        return None

    def sums(self) -> Array:
        """Return Q1, shape (m,): the number of cells, with their coefficients, in each query."""
        return self.answer(np.ones(self.shape))

    def squared_sums(self) -> float:
        """Return ‖Q1‖²."""
        return float((self.sums() ** 2).sum())

    def column_norms(self) -> Array:
        """Return Σ_q Q[q, cell]², shape (N,), the diagonal of the Gram matrix."""
        raise NotImplementedError

    def means(self, kept: tuple[int, ...]) -> Array:
        """Return the mean of each query over the axes not kept, shape (m, *kept sizes)."""
        dropped = tuple(axis + 1 for axis in range(len(self.shape)) if axis not in kept)
        q = self.coefficients.reshape(-1, *self.shape)
        return q.mean(axis=dropped, dtype=np.float64) if dropped else q.astype(np.float64)

    def answer(self, table: Array) -> Array:
        """Return Q applied to a table (*shape, ...), shape (m, ...); trailing axes are more tables.

        The dtype is that of the table if this is an integer and Q is integral.
        """
        raise NotImplementedError

    # Queries on one axis that each count one stretch of its cells are arcs.

    is_binary: ClassVar[bool] = True
    """Whether every coefficient is known to be 0 or 1."""
    is_partial: ClassVar[bool] = False
    """Whether some of the cells are in no query, by definition of the family."""

    def arc_lengths(self) -> NDArray[np.int64] | None:
        """Return the lengths of arcs that occur; None where the queries are no arcs."""
        return None

    def squares(self, covariance: Array) -> Array:
        """Return diag(Q C Qᵀ), the variance of every query's answer, shape (m, ...).

        C is (N, N, ...), symmetric in its first two axes; trailing axes are more covariances.
        """
        raise NotImplementedError

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Yield a label such as "age <= 39" for each query, in the order of :meth:`answer`.

        There is a name for each attribute covered, and a public label for each of its cells.
        """
        raise NotImplementedError


AxisQueries = Queries
"""Queries over a single attribute: shape is (n,)."""

MAX_COEFFICIENTS = 10**8
"""Most coefficients one matrix of queries may have."""
MAX_MAGNITUDE = 1e9
"""Largest coefficient of a custom matrix; weights express larger ones."""
BLOCK = 2**22
"""Coefficients converted to floating point at a time."""


class MatrixQueries(Queries):
    """Queries known by their coefficients, which subclasses provide."""

    is_binary = False

    @property
    def num_queries(self) -> int:
        return len(self.coefficients)

    def gram(self) -> Array:
        q = self.coefficients
        # Sums of fewer than 2^24 zeros and ones are exact in single precision, at half the time.
        exact = q.dtype == np.uint8 and len(q) < 2**24
        gram = np.zeros((self.size, self.size), np.float32 if exact else np.float64)
        for block in self._blocks():
            b = block.astype(gram.dtype)
            gram += b.T @ b
        return gram.astype(np.float64, copy=False)

    def sums(self) -> Array:
        return self.coefficients.sum(axis=1, dtype=np.float64)

    def column_norms(self) -> Array:
        return np.sum([(b.astype(np.float64) ** 2).sum(axis=0) for b in self._blocks()], axis=0)

    def answer(self, table: Array) -> Array:
        """Return Q applied to a table; signed for unsigned integers, since Q may be negative.

        Raise ResourceExceeded if the answers may not fit in the table's integers.
        """
        array: NDArray[Any] = np.asarray(table)
        axes = len(self.shape)
        flat = array.reshape(self.size, -1)
        dtype: np.dtype[Any] = np.dtype(np.float64)
        inner: np.dtype[Any] = dtype
        if self.integral and np.issubdtype(array.dtype, np.integer):
            dtype = array.dtype if array.dtype.kind == "i" else np.dtype(np.int64)
            largest = float(np.abs(flat.astype(np.float64)).sum(axis=0).max(initial=0.0))
            largest *= self._largest
            if largest >= np.iinfo(dtype).max:
                raise ResourceExceeded(  # no figure: it would tell how many rows there are
                    f"answers to a table do not fit in {dtype}: "
                    "make the coefficients of the queries smaller"
                )
            # Whole numbers below 2^53 are exact in double precision, and much faster.
            inner = np.dtype(np.float64) if largest < 2**53 else dtype
        x = flat.astype(inner)
        answers = np.empty((self.num_queries, flat.shape[1]), dtype)
        first = 0
        for block in self._blocks():
            answers[first : first + len(block)] = block.astype(inner) @ x
            first += len(block)
        return answers.reshape(self.num_queries, *array.shape[axes:])

    def squares(self, covariance: Array) -> Array:
        trailing = covariance.shape[2:]
        c = covariance.reshape(self.size, self.size, -1)
        variances = np.empty((self.num_queries, c.shape[2]))
        first = 0
        for block in self._blocks():
            b = block.astype(np.float64)
            for k in range(c.shape[2]):
                variances[first : first + len(b), k] = np.einsum("qi,qi->q", b @ c[:, :, k], b)
            first += len(b)
        return variances.reshape(self.num_queries, *trailing)

    @property
    def _largest(self) -> float:
        raise NotImplementedError

    def _blocks(self) -> Iterator[NDArray[Any]]:
        q, step = self.coefficients, max(1, BLOCK // self.size)
        return (q[first : first + step] for first in range(0, len(q), step))


@dataclass(frozen=True, eq=False)
class Custom(MatrixQueries):
    """The rows of any real matrix over the cells of some attributes; equal by content.

    Raises:
        WorkloadError: not a matrix, no rows, of another width, or with an entry that is not a
            number or is larger than ``MAX_MAGNITUDE``.
        ResourceExceeded: more than ``MAX_COEFFICIENTS`` entries.
    """

    values: ArrayLike  # Q, shape (m, Πshape): over the cells, the last attribute fastest
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _checked(self.values, math.prod(self.shape)))

    @property
    def coefficients(self) -> NDArray[Any]:
        return np.asarray(self.values)

    @cached_property
    def integral(self) -> bool:
        return all(bool((block == np.rint(block)).all()) for block in self._blocks())

    @cached_property
    def _largest(self) -> float:
        return float(max(np.abs(block).max() for block in self._blocks()))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the shape and coefficients."""
        digest = hashlib.sha256(repr(self.shape).encode())
        digest.update(self.coefficients.data)
        return digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Yield labels such as "custom query 7", from 1; on one attribute "age: custom query 7"."""
        of = name_of_one(names)
        return (f"{of}custom query {row + 1}" for row in range(self.num_queries))


class CustomAxis(Custom):
    """The rows of any real matrix over the cells of one attribute, shape (m, n)."""

    def __init__(self, values: ArrayLike) -> None:
        matrix = np.asarray(values)
        super().__init__(values, (matrix.shape[-1] if matrix.ndim else 0,))


def _checked(values: ArrayLike, width: int) -> Array:
    raw = np.asarray(values)
    if raw.ndim != 2 or raw.dtype.kind not in "biuf":
        raise WorkloadError(
            f"the matrix has {raw.ndim} dimension{'' if raw.ndim == 1 else 's'} of type "
            f"{raw.dtype}, not 2 of real numbers. It needs one row for each query."
        )
    if not raw.shape[0]:
        raise WorkloadError("the matrix has no rows. It needs one row for each query.")
    if raw.shape[1] != width or not width:
        raise WorkloadError(
            f"the matrix has {raw.shape[1]:,} columns for {width:,} cells. These must be equal."
        )
    check_size(raw.shape[0], width, "request fewer queries")
    matrix = raw.astype(np.float64, order="C")
    matrix += 0.0  # −0 becomes 0, so that equal matrices have equal bytes
    bad = np.flatnonzero(~(np.abs(matrix).max(axis=1) <= MAX_MAGNITUDE))  # NaN is bad as well
    if bad.size:
        raise WorkloadError(
            f"row {bad[0] + 1} of the matrix has an entry that is not a number "
            f"of at most {MAX_MAGNITUDE:.0e}: correct or scale it"
        )
    matrix.flags.writeable = False
    return matrix


def name_of_one(names: tuple[str, ...]) -> str:
    """Return the start of a label: the name of the attribute if it is the only one."""
    return f"{names[0]}: " if len(names) == 1 else ""


def check_size(rows: int, cells: int, advice: str) -> None:
    """Raise ResourceExceeded if these queries on these cells have too many coefficients."""
    if rows * cells > MAX_COEFFICIENTS:
        raise ResourceExceeded(
            f"{rows:,} queries on {cells:,} cells have {rows * cells:,} coefficients, "
            f"more than {MAX_COEFFICIENTS:,}: {advice}"
        )


MAX_CSV_BYTES = 2**28
"""Largest CSV file of a matrix; a binary file holds as much in far fewer bytes."""


def read_matrix(path: Path) -> NDArray[Any]:
    """Read the matrix in a file, one row for each query; its size is checked first.

    Raise WorkloadError if there is none, ResourceExceeded if it is too large.
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
    """Refuse rows so large that solvers would take others for rounding errors."""
    if matrix.ndim != 2 or not matrix.any() or not np.isfinite(matrix).all():
        return  # refused elsewhere
    largest = np.abs(matrix.astype(np.float64)).max(axis=1)
    least = np.where(largest > 0, largest, np.inf)
    most = 1e4  # largest ratio of the largest entries of two rows
    if largest.max() > most * least.min():
        raise WorkloadError(
            f"{path}: the largest entries of rows {least.argmin() + 1:,} and "
            f"{largest.argmax() + 1:,} differ by more than a factor of {most:,.0f}: scale the "
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
            "request fewer queries"
        )
    return np.array(matrix)


def _read_csv(path: Path) -> NDArray[Any]:
    if path.stat().st_size > MAX_CSV_BYTES:
        raise ResourceExceeded(
            f"{path}: is larger than {MAX_CSV_BYTES >> 20} MiB: save the matrix as .npy"
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # about no rows, which are refused elsewhere
            return np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig", comments=None)
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: not UTF-8 text: save the file as UTF-8") from None
    except ValueError as error:  # NumPy counts rows from 0 if a cell is not a number, else from 1
        row = int("".join(re.findall(r"row (\d+)", str(error)))) + ("convert" in str(error))
        raise WorkloadError(
            f"{path}: row {row} is not a row of numbers that is as long as row 1: "
            "use numbers between commas and no header"
        ) from None
