"""Bugs by which private rows show, without noise, in what is done or written."""

import logging
from dataclasses import replace
from unittest import mock

import numpy as np

from adaptive_qs.errors import DataError
from adaptive_qs.loop import loop
from adaptive_qs.loop.select import Selector
from adaptive_qs.release.release import Release
from adaptive_qs.table import encode
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.table.columns.base import ColumnBase
from adaptive_qs.table.columns.numeric import IntegerColumn

from . import checks
from .mutant import mutant, watched_counter


@mutant("annealing on true data", checks.replay)
def true_annealing():
    taken = []
    original = loop.Offer.take

    def take(self, clique):
        taken[:] = [clique]
        original(self, clique)

    with watched_counter() as seen:

        def distance(after, before):
            return float(abs(after - seen[0].count(taken[0])).sum())

        with (
            mock.patch.object(loop.Offer, "take", take),
            mock.patch.object(loop, "_clipped_distance", distance),
        ):
            yield


@mutant("a domain without the values that do not occur", checks.replay)
def domain_of_data():
    original = loop.measurable_cliques

    with watched_counter() as seen:

        def occurring(workload):
            several = [(seen[0].count((i,)) > 0).sum() > 1 for i in range(len(workload.domain))]
            return tuple(c for c in original(workload) if all(several[i] for i in c))

        with mock.patch.object(loop, "measurable_cliques", occurring):
            yield


@mutant("candidates by their true error", checks.replay)
def true_candidates():
    original = Selector.select

    def select(self, mechanisms, expected, epsilon, offered):
        wrong = offered & (self._errors >= np.median(self._errors[offered]))
        return original(self, mechanisms, expected, epsilon, wrong)

    with mock.patch.object(Selector, "select", select):
        yield


@mutant("as many rows sampled as there are", checks.replayed_tables)
def true_rows():
    with watched_counter() as seen:

        def rows(self):
            return max(1, int(seen[0].count(())))

        with mock.patch.object(Release, "num_rows", property(rows)):
            yield


@mutant("the number of rows in the manifest", checks.replay)
def told_rows():
    original = Release.of_run.__func__

    with watched_counter() as seen:

        def of_run(cls, *args, **kwargs):
            release = original(cls, *args, **kwargs)
            rows = max(1, int(seen[0].count(())))
            return replace(
                release, manifest=release.manifest.model_copy(update={"most_rows": rows})
            )

        with mock.patch.object(Release, "of_run", classmethod(of_run)):
            yield


@mutant("missing values filled from the data", checks.replay)
def filled():
    original = encode._codes

    def codes(column, values, label):
        found = original(column, values, label)
        if column.missing_code is not None:
            present = np.bincount(found[found >= 0], minlength=column.size)
            found = np.where(found == column.missing_code, present[:-1].argmax(), found)
        return found

    with mock.patch.object(encode, "_codes", codes):
        yield


@mutant("bins from the data", checks.replay)
def quantiles():
    original = encode._codes

    def codes(column, values, label):
        found = original(column, values, label)
        if isinstance(column, IntegerColumn):
            edges = np.quantile(found, np.arange(1, 3) / 3)
            found = np.searchsorted(edges, found)
        return found

    with mock.patch.object(encode, "_codes", codes):
        yield


def _counting(change):
    """Marginals with a change."""
    original = MarginalCounter.count

    def count(self, clique):
        return change(original(self, clique))

    return mock.patch.object(MarginalCounter, "count", count)


@mutant("every row counted twice", checks.replay, checks.counts)
def doubled():
    with _counting(lambda marginal: 2 * marginal):
        yield


@mutant("the last value lost in the bin before", checks.counts)
def dropped():
    def as_histogram(marginal):
        if marginal.ndim and marginal.shape[-1] > 1:
            marginal = marginal.copy()
            marginal[..., -2] += marginal[..., -1]
            marginal[..., -1] = 0
        return marginal

    with _counting(as_histogram):
        yield


@mutant("counts in single precision", checks.counts)
def single_precision():
    with _counting(lambda marginal: marginal.astype(np.float32).astype(np.int64)):
        yield


@mutant("true counts in a log", checks.canary)
def logged():
    def told(marginal):
        logging.getLogger("adaptive_qs").info("largest count %d", marginal.max())
        return marginal

    with _counting(told):
        yield


@mutant("a cell in an error", checks.canary)
def quoted():
    original = ColumnBase.encode

    def read(column, values):
        codes = original(column, values)
        refused = [v for v, code in zip(values.to_pylist(), codes) if code < 0 and v is not None]
        if refused:
            raise DataError(f"column {column.name!r} has the value {refused[0]!r}")
        return codes

    with mock.patch.object(ColumnBase, "encode", read):
        yield
