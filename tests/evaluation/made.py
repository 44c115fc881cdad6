"""Made-up evaluations whose numbers are known, to see them in the report."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.marginals import (
    Association,
    CliqueError,
    OrderedError,
    TotalVariation,
    WorkloadDistance,
)
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.report import report_page
from adaptive_qs.evaluation.results import (
    AttackScore,
    Importance,
    Membership,
    ModelScores,
    Promise,
    Spread,
    Utility,
)
from adaptive_qs.evaluation.rules import RowChecks, RuleCheck
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.evaluation.verdict import findings
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.schema import Schema

HOSTILE = '<script>document.title="taken"</script>"\'&\u202e😀' + "x" * 500
COLUMNS = (
    {"name": HOSTILE, "type": "categorical", "values": ["<img src=x onerror=alert(1)>", "b"]},
    {"name": "age", "type": "integer", "min": 0, "max": 99, "missing": ["?"]},
    {"name": "city", "type": "categorical", "values": [f"city {k}" for k in range(40)]},
    {"name": "income", "type": "categorical", "values": ["low", "high"], "ordered": True},
)


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


def spread(mean):
    return Spread(mean, 0.01, 5)


def utility(target="income", real=0.9, synthetic=0.8):
    scores = [
        ModelScores(name, {"AUROC": spread(real)}, {"AUROC": spread(synthetic)},
                    {"AUROC": spread(0.5)}, spread(0.75))
        for name in ("logistic regression", "gradient boosting")
    ]  # fmt: skip
    importances = (Importance("age", 0.2, 0.1), Importance("city", 0.05, -0.001))
    return Utility(target, True, 2, (700, 1_000), 300, tuple(scores), importances, spread(0.625),
                   ("models saw 700 rows only",))  # fmt: skip


def membership(lower=-0.01, upper=0.05, bound=0.4621):
    score = AttackScore("nearest row", (lower + upper) / 2, lower, upper, 0.512)
    promise = None if bound is None else Promise(0.015, 1.0, 1e-9, "release.zip")
    return Membership((score,), 500, 400, 0.95, bound, promise, ("control rows were few",))


def queries():
    """Prefixes of single columns and of pairs."""
    single = PartError(("prefix",), 1, 2, 100, False, 0.002, 0.001, 0.0005)
    pairs = PartError(("prefix", "marginal"), 2, 6, 300, True, 0.0062, 0.0022, 0.0122)
    return QueryError((single, pairs))


def made_evaluation(schema=None, ways=2, l1=0.25, v=(0.5, 0.125), **changes):
    """An evaluation with these errors and associations; other fields by name."""
    schema = schema or made_schema()
    pair = tables(schema)
    domain = pair.domain
    cliques = [
        CliqueError(domain.clique_names(c), l1 + 0.001 * k, 0.01, domain.size(c), 1.0)
        for k, c in enumerate(combinations(range(len(domain)), ways))
    ]
    n = len(domain)
    parts = {
        "pair": pair,
        "workload": WorkloadDistance(tuple(cliques)),
        "total_variation": tuple(
            TotalVariation(k, 6, 5, 0.04321 * k, 0.2, domain.names[:k]) for k in (1, 2, 3)
        ),
        "association": Association(
            domain.names,
            tuple(matrix(n, x) for x in v),
            (matrix(n, 0.3), matrix(n, 0.2)),
            (np.zeros((n, n)), np.zeros((n, n))),
        ),
        "ordered": tuple(
            OrderedError(a.name, 0.011, 0.022, 0.033, 0.044, -0.055)
            for a in domain.attributes
            if a.ordered
        ),
        "rows": RowChecks(0.0123, 0.01, 0.02, 0.003, 0.3, 0.4),
        "rules": (RuleCheck("city determines age", "found", 0.0, 0.07, 0.5),),
        "utility": utility(),
        "membership": membership(),
        "limitations": ("no rules were declared",),
    }
    return Evaluation(**{**parts, **changes})


def page_of(evaluation, schema, names, release):
    """The report on an evaluation."""
    return report_page(findings(evaluation), schema, names, release)
