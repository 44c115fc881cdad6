"""Structural zeros: cells that no row may lie in, and rows that lie in none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.errors import InputError
from adaptive_qs.generate.loglinear import Adjacency, Rows, Target, build_adjacency, uniform

Mask = NDArray[np.bool_]
Array = NDArray[np.float64]

SCALINGS = 20
"""Rounds in which a masked table is brought to its margins."""
TRIES = 200
"""Values of a row that are changed, one after the other, until it lies in no forbidden cell."""


@dataclass(frozen=True, eq=False)
class Zero:
    """Cells of a marginal that are empty in every table.

    Attributes:
        clique: its attributes.
        allowed: which cells are not, shaped like the marginal.
    """

    clique: Clique
    allowed: Mask


Zeros = Sequence[Zero]


def allowed_cells(zeros: Zeros, domain: Domain, clique: Clique) -> Mask | None:
    """Which cells of a marginal some row may lie in, as far as each zero by itself tells, shaped
    like it; None where all are."""
    allowed: Any = None
    for zero in zeros:
        beyond = tuple(k for k, i in enumerate(zero.clique) if i not in clique)
        part = np.asarray(zero.allowed.any(axis=beyond))
        if part.all():
            continue
        shape = [n if i in zero.clique else 1 for i, n in zip(clique, domain.shape(clique))]
        part = part.reshape(shape)
        allowed = part if allowed is None else allowed & part
    return None if allowed is None else np.broadcast_to(allowed, domain.shape(clique))


def masked(target: Target, zeros: Zeros, domain: Domain) -> Target:
    """A target without its counts in forbidden cells, and the same total."""
    allowed = allowed_cells(zeros, domain, target.clique)
    if allowed is None:
        return target
    counts: Any = np.where(allowed, target.counts, 0.0)
    total, left = float(target.counts.sum()), float(counts.sum())
    even = allowed * (total / max(int(allowed.sum()), 1))
    counts = counts * (total / left) if left > 0 else even
    return Target(target.clique, counts, target.noise_std)


def independent_target(zero: Zero, singles: Sequence[Array]) -> Target:
    """The marginal of attributes that depend on each other by a zero alone.

    Among all tables without mass in forbidden cells it is the one nearest to the product of the
    single columns, by iterative proportional fitting (Deming and Stephan 1940). It has no noise of
    its own; infinite here, so that any measured one is preferred.

    Args:
        zero: what is forbidden.
        singles: counts of each attribute (rows).
    """
    table = zero.allowed.astype(np.float64)
    wanted = [singles[i] for i in zero.clique]
    for _ in range(SCALINGS):
        for axis, counts in enumerate(wanted):
            others = tuple(k for k in range(table.ndim) if k != axis)
            sums = table.sum(axis=others)
            scale = np.divide(counts, sums, out=np.zeros_like(sums), where=sums > 0)
            table *= scale.reshape([-1 if k == axis else 1 for k in range(table.ndim)])
    if not table.sum() > 0:
        table = zero.allowed.astype(np.float64)
    return Target(zero.clique, table * (wanted[0].sum() / table.sum()), np.inf)


class Guard(NamedTuple):
    """All zeros as compiled kernels walk them.

    Attributes:
        adjacency: where the cells around each attribute lie.
        allowed: which of all cells one after the other may be occupied.
    """

    adjacency: Adjacency
    allowed: Mask

    @classmethod
    def of(cls, zeros: Zeros, domain: Domain) -> Guard:
        """The zeros of a domain."""
        adjacency = build_adjacency(domain, [z.clique for z in zeros], copy_per_axis=False)
        cells = [np.ravel(zero.allowed) for zero in zeros]
        return cls(adjacency, np.concatenate([np.zeros(0, dtype=np.bool_), *cells]))


def settle(rows: Rows, zeros: Zeros, singles: Sequence[Array], key: int) -> None:
    """Change rows in forbidden cells, in place, until they lie in none.

    A random walk: of the attributes of a violated zero, a random one is drawn anew from its own
    distribution among the values that the zero allows beside the others. A row that is still in a
    forbidden cell after ``TRIES`` changes becomes a copy of a random one that is not.

    Args:
        rows: codes.
        zeros: what is forbidden.
        singles: counts of each attribute (rows).
        key: of the random numbers.

    Raises:
        InputError: no row was found that lies in none.
    """
    if not zeros:
        return
    domain = Domain.from_sizes({str(i): single.size for i, single in enumerate(singles)})
    guard = Guard.of(zeros, domain)
    width = max(len(zero.clique) for zero in zeros)
    members = np.full((len(zeros), width), -1)
    strides = np.zeros((len(zeros), width), dtype=np.int64)
    for k, zero in enumerate(zeros):
        members[k, : len(zero.clique)] = zero.clique
        steps = np.cumprod([1, *zero.allowed.shape[:0:-1]])[::-1]
        strides[k, : len(zero.clique)] = steps
    start = np.cumsum([0, *(single.size for single in singles)])
    weights = np.concatenate([np.maximum(single, 1e-9) for single in singles])
    settled = np.zeros(len(rows), dtype=np.bool_)
    _settle(
        rows, members, strides, guard.adjacency.position, guard.allowed, weights, start, settled,
        np.uint64(key),
    )  # fmt: skip
    if not settled.any():
        raise InputError("no row was found that meets all rules: take one out")
    rng = np.random.default_rng(key)
    rows[~settled] = rows[rng.choice(np.flatnonzero(settled), int((~settled).sum()))]


@njit(cache=True, nogil=True)
def _settle(rows, members, strides, position, allowed, weights, start, settled, key):  # type: ignore[no-untyped-def]
    count, width = members.shape
    violated = np.empty(count, np.int64)
    for r in range(rows.shape[0]):
        for step in range(TRIES + 1):
            number = 0
            for z in range(count):
                cell = position[z]
                for k in range(width):
                    if members[z, k] >= 0:
                        cell += rows[r, members[z, k]] * strides[z, k]
                if not allowed[cell]:
                    violated[number] = z
                    number += 1
            if number == 0:
                settled[r] = True
                break
            if step == TRIES:
                break
            z = violated[int(uniform(key, r, 3 * step) * number)]
            size = 0
            while size < width and members[z, size] >= 0:
                size += 1
            k = int(uniform(key, r, 3 * step + 1) * size)
            i = members[z, k]
            first = position[z]
            for other in range(size):
                if other != k:
                    first += rows[r, members[z, other]] * strides[z, other]
            total = 0.0
            for v in range(start[i + 1] - start[i]):
                if allowed[first + v * strides[z, k]]:
                    total += weights[start[i] + v]
            if total == 0.0:  # whatever this one is, the others forbid it
                size_of = start[i + 1] - start[i]
                rows[r, i] = int(uniform(key, r, 3 * step + 2) * size_of)
                continue
            left = uniform(key, r, 3 * step + 2) * total
            for v in range(start[i + 1] - start[i]):
                if allowed[first + v * strides[z, k]]:
                    rows[r, i] = v
                    left -= weights[start[i] + v]
                    if left < 0.0:
                        break


def masks_of(zeros: Zeros, domain: Domain, cliques: Iterable[Clique]) -> dict[Clique, Mask]:
    """For each clique with zeros inside it, the cells that these leave."""
    found: dict[Clique, Mask] = {}
    for clique in cliques:
        allowed = allowed_cells(inside(zeros, clique), domain, clique)
        if allowed is not None:
            found[clique] = allowed
    return found


def inside(zeros: Iterable[Zero], clique: Clique) -> list[Zero]:
    """The zeros all of whose attributes a clique has."""
    members = set(clique)
    return [zero for zero in zeros if members.issuperset(zero.clique)]
