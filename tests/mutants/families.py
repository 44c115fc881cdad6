"""Bugs in what protects a parent with all children."""

from functools import partial

import numpy as np

from adaptive_qs.audit.replay import AuditReport, compare, record
from adaptive_qs.errors import DataError
from adaptive_qs.privacy.budget import Budget, Part
from adaptive_qs.privacy.events import Cost
from adaptive_qs.privacy.noise import InsecureSeed
from adaptive_qs.privacy.unit import Unit
from adaptive_qs.table import related

from ..family import SCHEMA, made, published, without
from .mutant import replaced

TABLES = made(60, seed=5, most=6)
LARGEST = TABLES[1]["home"].value_counts().index[0]


def replayed_families():
    """Neighbours that differ by the parent with most children; or no release, whose parts do not
    fit each other."""
    report, runs = AuditReport(), []
    for tables in (TABLES, without(TABLES, LARGEST)):
        budget = Budget(20.0, 0, True, Unit("home", 1, related="parents"))
        job = partial(published, tables, rho=20.0)
        try:
            runs.append(record(job, budget, InsecureSeed(4), *runs))
        except ValueError as error:
            return [str(error)]
    compare(*runs, "families", report)
    return report.findings


def children_of_nobody():
    """A table of children whose parents are not all there."""
    homes, persons = TABLES
    described = related.RelatedSchema.parse(SCHEMA)
    try:
        related.Family.of(homes[homes["home"] != LARGEST], persons, described, 2**30)
    except DataError:
        return []
    return ["children without a parent are taken"]


@replaced(Unit, "priced", "children charged as one row", replayed_families)
def one_child(original, self, event):
    return event if self.related == "children" else original(self, event)


@replaced(Part, "release", "a part of a budget that does not charge the whole", replayed_families)
def free_part(_, self, events, draw, definition=""):
    self._charge(events, Cost.of(events))
    return draw()


@replaced(related, "_count_children", "children whose parent is not there", children_of_nobody)
def orphans(_, keys, tables, schema, parents):
    return np.zeros(len(keys), dtype=np.int64)
