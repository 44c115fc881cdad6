"""Private counts, scores and values open inside ``privacy/`` only, for the budget that pays."""

import ast
import copy
import json
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaptive_qs
from adaptive_qs.domain import Domain
from adaptive_qs.errors import InputError
from adaptive_qs.learn.ranges import Tree
from adaptive_qs.levels import Groups
from adaptive_qs.privacy.accounting import FINE_NOISE
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.counts import (
    Centering,
    Identity,
    LinearQuery,
    Measurement,
    PrivateCounts,
    PrivateScores,
    PrivateTexts,
    PrivateValues,
)
from adaptive_qs.privacy.events import UNITS_PER_RHO, Purpose
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.scores import PrivateErrors
from adaptive_qs.strategy.integer import GridFactor
from adaptive_qs.strategy.solution import CenteringFactor, DenseFactor, IdentityFactor
from adaptive_qs.table.coded import CodedTable, MarginalCounter

BUDGET = Budget(1.0)
DOMAIN = Domain.from_sizes({"a": 2, "b": 3})
COUNTER = MarginalCounter(CodedTable.from_codes(DOMAIN, [np.array([0, 1, 1]), np.array([0, 2, 2])]))
TABLE = Mechanisms(BUDGET, InsecureSeed(0)).table(COUNTER)
SECRET = 987654321
PRIVATE = {
    "counts": PrivateCounts(np.array([SECRET]), BUDGET),
    "one count": PrivateCounts(np.array(SECRET), BUDGET),
    "values": PrivateValues(np.array([SECRET]), BUDGET),
    "texts": PrivateTexts([str(SECRET)], np.array([SECRET]), BUDGET),
    "scores": PrivateScores(np.array([SECRET]), BUDGET, 1),
    "table": TABLE,
    "errors": PrivateErrors(TABLE, [(0,), (0, 1)], np.ones(2)),
}
OPENERS = {
    "int": int,
    "float": float,
    "complex": complex,
    "index": lambda p: [1, 2][p],
    "bool": bool,
    "len": len,
    "iteration": list,
    "unpacking": lambda p: [*p],
    "indexing": lambda p: p[0],
    "membership": lambda p: SECRET in p,
    "equality": lambda p: p == SECRET,
    "inequality": lambda p: p != SECRET,
    "order": lambda p: p < SECRET,
    "sum": lambda p: sum([p]),
    "np.asarray": lambda p: np.asarray(p, dtype=np.int64),
    "np.array": np.array,
    "np.sum": np.sum,
    "arithmetic": lambda p: p + 1,
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "state": lambda p: p.__getstate__(),
    "another owner": lambda p: setattr(p, "owner", None),
    "no owner": lambda p: delattr(p, "owner"),
    "json": json.dumps,
    "f-string": lambda p: f"{p}",
    "format": lambda p: f"{p:d}",
    "percent": lambda p: "%d" % p,  # noqa: UP031
    "hash": hash,
    "dict": vars,
}


@pytest.mark.parametrize("private", PRIVATE)
@pytest.mark.parametrize("opener", OPENERS)
def test_nothing_opens_what_is_private(private, opener):
    with pytest.raises(TypeError) as caught:
        OPENERS[opener](PRIVATE[private])
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize("private", PRIVATE)
def test_a_debugger_sees_the_type_only(private):
    for text in (repr(PRIVATE[private]), str(PRIVATE[private]), repr([PRIVATE[private]])):
        assert str(SECRET) not in text
        assert type(PRIVATE[private]).__name__ in text


def test_another_budget_can_measure_nothing():
    other = Mechanisms(Budget(10**6), InsecureSeed(0))
    query = LinearQuery(Purpose.STRATEGY, ("a",), (Identity(1),))
    uses = [
        lambda: other.measure([Measurement(query, PRIVATE["counts"], Fraction(1))]),
        lambda: other.select(PRIVATE["scores"], 1.0),
    ]
    for use in uses:
        with pytest.raises(InputError, match="belong to another budget"):
            use()
    assert other.ledger.events == ()


OPENING = {"open_private", "_Closed__exact", "exact_answers"}


def test_no_module_outside_privacy_opens_anything():
    """By names, imports and attributes; a text may be an attribute's name as well."""
    package = Path(adaptive_qs.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        if path.parent.name == "privacy" and path.parent.parent == package:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names}
                source = getattr(node, "module", None)
                if source == "adaptive_qs.privacy.counts" and OPENING & names:
                    found.add((path.name, node.lineno))
                if source == "adaptive_qs.privacy" and "counts" in names:
                    found.add((path.name, node.lineno))
                if "adaptive_qs.privacy.counts" in names:
                    found.add((path.name, node.lineno))
            if isinstance(node, ast.Attribute) and node.attr in OPENING:
                found.add((path.name, node.lineno))
            if isinstance(node, ast.Constant) and node.value in ("_Closed__exact", "exact_answers"):
                found.add((path.name, node.lineno))
    assert found == set()


GRID = GridFactor(np.array([[3, -1, -2], [0, 4, -4], [1, 1, -2]]), (True,), (3,))
MAPS = {
    "cells": Identity(4),
    "cells of two histograms": Identity(4, 2),
    "groups of one": Centering(Groups.one(5)),
    "groups": Centering(Groups([0, 0, 0, 1, 1, 2])),
    "tree": Tree(3, 2, 7),
    "grid": GRID,
    "centering": CenteringFactor(5),
    "identity": IdentityFactor(5),
}


@pytest.mark.parametrize("name", MAPS)
def test_the_sensitivity_of_a_map_is_the_longest_of_its_columns(name):
    each = MAPS[name]
    size = int(np.prod(each.shape))
    columns = each.answers(np.eye(size, dtype=np.int64)) if name != "tree" else np.stack(
        [each.answers(row[:, None])[:, 0] for row in np.eye(size, dtype=np.int64)], axis=1
    )  # fmt: skip
    lengths = (columns**2).sum(axis=0)
    rows = 2 if name == "cells of two histograms" else 1  # a row is in one cell of each
    assert abs(columns).max() <= each.largest
    if name == "groups":  # smaller groups move less, and what rounding leaves is bounded
        assert lengths.max() <= each.squared_norm
    else:
        assert lengths.max() * rows == each.squared_norm


@given(st.lists(st.sampled_from(["cells", "groups", "grid", "centering"]), max_size=3),
       st.integers(0, 99))  # fmt: skip
def test_a_query_is_the_kronecker_product_of_its_maps(names, seed):
    maps = [MAPS[name] for name in names]
    query = LinearQuery(Purpose.STRATEGY, ("a",), maps)
    shape = tuple(n for each in maps for n in each.shape)
    table = np.random.default_rng(seed).integers(0, 50, shape)
    matrix = np.ones((1, 1), dtype=np.int64)
    for each in maps:
        matrix = np.kron(matrix, each.answers(np.eye(each.shape[0], dtype=np.int64)))
    assert query.answers(table).ravel().tolist() == (matrix @ table.ravel()).tolist()
    assert (matrix**2).sum(axis=0).max() <= query.squared_sensitivity
    assert abs(matrix).max() <= query.largest


def test_rounded_answers_are_refused():
    with pytest.raises(TypeError, match="integer"):
        LinearQuery(Purpose.STRATEGY, ("a",), (DenseFactor(np.eye(2), (2,)),))


def test_a_row_in_two_histograms_is_not_charged_as_one():
    counts = PrivateValues(np.arange(3), BUDGET).histograms(*[(lambda values: values, 3)] * 2)
    query = LinearQuery(Purpose.HEAPS, ("a",), (Identity(6),))
    with pytest.raises(ValueError, match="more cells"):
        Measurement.costing(query, counts, 1)
    twice = LinearQuery(Purpose.HEAPS, ("a",), (Identity(6, 2),))
    assert Measurement.costing(twice, counts, 1).event.squared_sensitivity == 2


@given(st.integers(1, 2**70), st.sampled_from(sorted(MAPS)))
def test_a_measurement_costs_exactly_its_units_however_fine_its_noise(units, name):
    query = LinearQuery(Purpose.STRATEGY, ("a",), (MAPS[name],))
    counts = PrivateCounts(np.zeros(MAPS[name].shape, np.int64), BUDGET)
    plain = Measurement.costing(query, counts, units)
    fine = plain.finely()
    assert plain.event.rho == fine.event.rho == Fraction(units, UNITS_PER_RHO)
    assert fine.factor & (fine.factor - 1) == 0
    assert fine.factor == 1 or fine.noise_variance / 4 < FINE_NOISE**2
    assert fine.factor * query.largest * 2**40 <= 2**62


def test_counts_are_integers():
    with pytest.raises(InputError, match="Use integers"):
        PrivateCounts(np.ones(2), BUDGET)
