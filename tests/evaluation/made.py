"""Made-up evaluations whose numbers are known, to see them in the verdict and the report."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from adaptive_qs.evaluation.associations import Association
from adaptive_qs.evaluation.checks import CHECKS, Comparison, Finding
from adaptive_qs.evaluation.columns import column_pairs
from adaptive_qs.evaluation.evaluation import Evaluation, Promised
from adaptive_qs.evaluation.groups import GroupFacts, Profiles
from adaptive_qs.evaluation.marginals import MarginalsCheck, WorkloadDistance, marginals_sentence
from adaptive_qs.evaluation.models import ModelSettings, Spread, Utility
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.rows import RowChecks, RuleFacts
from adaptive_qs.evaluation.rules import RuleCheck
from adaptive_qs.evaluation.scale import CliqueError
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

HOSTILE = '<script>document.title="taken"</script>"\'&\u202e😀' + "x" * 500
COLUMNS = (
    {"name": HOSTILE, "type": "categorical", "values": ["<img src=x onerror=alert(1)>", "b"]},
    {"name": "age", "type": "integer", "min": 0, "max": 99, "missing": ["?"]},
    {"name": "city", "type": "categorical", "values": [f"city {k}" for k in range(40)]},
    {"name": "income", "type": "categorical", "values": ["low", "high"], "ordered": True},
)


def made_table(rows):
    """Rows as a data owner has them, with a hostile name of a column."""
    rng = np.random.default_rng(3)
    return pd.DataFrame({
        HOSTILE: rng.choice(["b"], rows), "age": rng.integers(0, 100, rows),
        "city": [f"city {k}" for k in rng.integers(0, 40, rows)],
        "income": rng.choice(["low", "high"], rows),
    })  # fmt: skip


def made_schema(columns=COLUMNS):
    return Schema.parse({"version": 1, "columns": list(columns)})


def tables(schema, rows=5_000):
    """Columns that depend on each other in the true table only."""
    rng = np.random.default_rng(4)
    domain = schema.domain()
    hidden = rng.random(rows)
    true = [(hidden * n).astype(int) for n in domain.sizes]
    made = [(rng.random(rows) * n).astype(int) for n in domain.sizes]
    return TablePair(CodedTable.from_codes(domain, true), CodedTable.from_codes(domain, made))


def matrix(size, value):
    filled = np.full((size, size), value)
    np.fill_diagonal(filled, 1.0)
    return filled


def utility(target="income", real=0.9, synthetic=0.8):
    spreads = (Spread(mean, 0.01, 5) for mean in (real, synthetic))
    return Utility(target, 2, (700, 1_000), 300, *spreads, ("models saw 700 rows only",))


def queries():
    """Prefixes of single columns and of pairs."""
    single = PartError(("prefix",), 1, 2, 100, False, 0.002, 0.001, 0.0005)
    pairs = PartError(("prefix", "marginal"), 2, 6, 300, True, 0.0062, 0.0022, 0.0122)
    return QueryError((single, pairs))


RULES = RuleFacts((RuleCheck("city determines age", "found", 0.0, 0.07, 0.5),), None, 0.0, ())


def made_evaluation(schema=None, ways=2, l1=0.25, v=(0.5, 0.125), pair=None, **changes):
    """An evaluation with these errors and associations; other facts by name."""
    schema = schema or made_schema()
    pair = pair or tables(schema)
    domain = pair.domain
    cliques = [
        CliqueError(domain.clique_names(c), l1 + 0.001 * k, 0.01, domain.size(c), 1.0)
        for k, c in enumerate(combinations(range(len(domain)), ways))
    ]
    n, notes = len(domain), changes.pop("notes", ("the tables are made up",))
    release = changes.pop("promised", Promised())
    nothing = np.zeros((n, n))
    facts = {
        **dict.fromkeys(CHECKS),
        "rows": RowChecks(0.0123, 0.01, 0.02, 0.003, 0.3, 0.4),
        "rules": RULES,
        "values": (),
        "group_means": GroupFacts(()),
        "profiles": Profiles((), ()),
        "correlations": (),
        "workload": WorkloadDistance(tuple(cliques)),
        "columns": column_pairs(pair),
        "association": Association(
            domain.names, tuple(matrix(n, x) for x in v), (nothing, nothing)
        ),
        "utility": utility(),
        **changes,
    }
    workload = Workload.all_ways(domain, ways)
    comparison = Comparison(pair, schema, workload, release, ModelSettings())
    return Evaluation(comparison, facts, notes)


def marginals_finding(evaluation, scale):
    """What the check of marginals says on another scale than that of the tables."""
    text = marginals_sentence(evaluation.workload, scale, evaluation)
    return Finding(*MarginalsCheck().word_for(scale.place), text)
