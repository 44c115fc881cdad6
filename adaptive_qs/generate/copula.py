"""A Gaussian copula of ordered columns, from the interactions of their halves."""

from __future__ import annotations

from itertools import combinations

import os
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.residual import ReferenceModel

Array = NDArray[np.float64]
GRID = np.tanh(np.linspace(-4, 4, 401))  # correlations


def used(model, pairs):
    c, level = Copula(model), halves(model.domain)
    least = float(os.environ.get("COP_LEAST", "0.45"))
    place = {level[i]: k for k, i in enumerate(c.columns)}
    at = [(place[a], place[b]) for a, b in pairs]
    chi = np.array([(c.raw[x] / c.std[x]) ** 2 for x in at])
    square = np.mean([c.raw[x] ** 2 - c.std[x] ** 2 for x in at])
    if os.environ.get("COP_DEBUG"):
        sig = (chi.sum() - len(pairs)) / np.sqrt(2 * len(pairs))
        std = np.median([c.std[x] for x in at])
        print("chi sigmas", sig, len(pairs), "square", square, "std", std)
    if chi.sum() < len(pairs) + 3 * np.sqrt(2 * len(pairs)):
        return []
    return pairs if square >= float(os.environ.get("COP_LEAST", "0.25")) else []


def halves(domain: Domain) -> dict[int, int]:
    """Return the level of two groups of each ordered attribute that has one."""
    return {
        g.attribute: len(domain) + k
        for k, g in enumerate(domain.groupings)
        if g.number == 2 and domain.attributes[g.attribute].ordered
    }


def density(a: Array, b: Array, r: Array) -> Array:
    u = 1 - r * r
    return np.exp(-(a * a - 2 * r * a * b + b * b) / (2 * u)) / (2 * np.pi * np.sqrt(u))


class Copula:
    def __init__(self, model: ReferenceModel) -> None:
        domain = model.domain
        level = halves(domain)
        self.columns = [*level]
        d, n = len(level), max(model.total, 1.0)
        # on-scale shares
        self.ends, self.scale = [], []
        low, cut = np.zeros(d), np.zeros(d)
        for k, i in enumerate(self.columns):
            q = model.reference[i]
            on = q.size - domain.attributes[i].beyond
            w = q[:on].sum()
            up = np.concatenate([[0.0], np.cumsum(q[:on])]) / w
            self.ends.append(np.clip(up, 0, 1))
            self.scale.append(w)
            g = np.array(domain.groupings[level[i] - len(domain)].groups)
            low[k] = q[g == 0].sum()
            cut[k] = q[:on][g[:on] == 0].sum() / w
        z = ndtri(np.clip(cut, 1e-9, 1 - 1e-9))
        raw, std = np.zeros((d, d)), np.full((d, d), np.inf)
        for a, b in combinations(range(d), 2):
            tau = (level[self.columns[a]], level[self.columns[b]])
            e = model.estimates.get(tau)
            if e is None:
                continue
            ww = self.scale[a] * self.scale[b]
            D = (4 * e.values[0, 0] / n - (2 * low[a] - 1) * (2 * low[b] - 1)) / 4
            sdD = 1 / np.sqrt(e.precision) / (2 * n)
            unit = np.sqrt(low[a] * (1 - low[a]) * low[b] * (1 - low[b]))
            raw[a, b] = raw[b, a] = D / unit
            std[a, b] = std[b, a] = sdD / unit
        self.raw, self.std = raw, std
        self.phi = self.shrunk(raw, std)
        R = np.eye(d)
        for a, b in combinations(range(d), 2):
            ww = self.scale[a] * self.scale[b]
            unit = np.sqrt(low[a] * (1 - low[a]) * low[b] * (1 - low[b]))
            f = density(z[a], z[b], GRID)
            F = np.concatenate([[0], np.cumsum((f[1:] + f[:-1]) / 2 * np.diff(GRID))])
            F = (F - F[GRID.size // 2]) * ww
            R[a, b] = R[b, a] = np.interp(self.phi[a, b] * unit, F, GRID)
        R = np.clip(R, -0.99, 0.99)
        np.fill_diagonal(R, 1)
        lam, V = np.linalg.eigh(R)
        R = (V * np.maximum(lam, 0.01)) @ V.T
        s = np.sqrt(np.diag(R))
        self.R = R / np.outer(s, s)

    def shrunk(self, raw: Array, std: Array) -> Array:
        d = len(raw)
        if d < 2:
            return np.eye(d)
        off = ~np.eye(d, dtype=bool)
        s2 = np.where(off & np.isfinite(std), std**2, 0)
        noise = np.mean(s2[off])
        lam, V = np.linalg.eigh(raw)
        eta = np.sign(lam) * np.sqrt(np.maximum(lam**2 - 4 * noise * d, 0))
        M = (V * eta) @ V.T * off
        rest = raw - M
        spread = max(np.mean(rest[off] ** 2 - s2[off]), 0.0)
        weight = spread / (spread + s2 + 1e-12)
        M = M + np.where(off, rest * weight, 0)
        self.left = s2 * weight
        return np.clip(M, -1, 1)

    def cells(self, a: int, b: int) -> Array:
        """Joint on-scale shares minus product, padded for codes beyond."""
        r = self.R[a, b]
        A, B = self.ends[a], self.ends[b]
        m = 8
        u = (A[:-1, None] + np.diff(A)[:, None] * (np.arange(m) + 0.5) / m).ravel()
        x, y = ndtri(u), ndtri(B)
        with np.errstate(invalid="ignore"):
            c = ndtr((y[None] - r * x[:, None]) / np.sqrt(1 - r * r))
        c = np.diff(c, axis=1).reshape(len(A) - 1, m, -1).mean(axis=1)
        pa, pb = np.diff(A), np.diff(B)
        p = c * pa[:, None]
        for _ in range(3):
            p *= pb / np.maximum(p.sum(axis=0), 1e-300)
            p *= (pa / np.maximum(p.sum(axis=1), 1e-300))[:, None]
        p -= np.outer(pa, pb)
        return p * self.scale[a] * self.scale[b]


def fill(model: ReferenceModel) -> dict[Clique, Array]:
    if len(halves(model.domain)) < 2:
        return {}
    c = Copula(model)
    found = {}
    for a, b in combinations(range(len(c.columns)), 2):
        i, j = c.columns[a], c.columns[b]
        if model.holds_beyond((i, j)):
            continue
        out = np.zeros(model.domain.shape((i, j)))
        p = c.cells(a, b)
        out[: p.shape[0], : p.shape[1]] = p
        found[i, j] = out
    if os.environ.get("COP_DEBUG"):
        print("copula", len(c.columns), "std", np.median(c.std[np.isfinite(c.std)]), "pairs", len(found))
        print(np.round(c.raw, 2)); print(np.round(c.R, 2))
    return found
