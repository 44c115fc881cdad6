"""Differentially private synthetic tables and batch answers with error bars."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptive_qs.answering.answers import Answers as Answers
    from adaptive_qs.answering.api import answer as answer
    from adaptive_qs.answering.api import plan as plan
    from adaptive_qs.answering.plan import BatchPlan as BatchPlan
    from adaptive_qs.domain import Domain as Domain
    from adaptive_qs.evaluation.evaluation import Evaluation as Evaluation
    from adaptive_qs.evaluation.evaluation import evaluate as evaluate
    from adaptive_qs.evaluation.marginals import workload_error as workload_error
    from adaptive_qs.evaluation.tables import TablePair as TablePair
    from adaptive_qs.release.release import Release as Release
    from adaptive_qs.synthesizer import Synthesizer as Synthesizer
    from adaptive_qs.table.coded import CodedTable as CodedTable
    from adaptive_qs.table.schema import Schema as Schema
    from adaptive_qs.workload.workload import QueryWorkload as QueryWorkload
    from adaptive_qs.workload.workload import Workload as Workload


_HOMES = {
    "Answers": "adaptive_qs.answering.answers",
    "BatchPlan": "adaptive_qs.answering.plan",
    "CodedTable": "adaptive_qs.table.coded",
    "Domain": "adaptive_qs.domain",
    "Evaluation": "adaptive_qs.evaluation.evaluation",
    "QueryWorkload": "adaptive_qs.workload.workload",
    "Release": "adaptive_qs.release.release",
    "Schema": "adaptive_qs.table.schema",
    "Synthesizer": "adaptive_qs.synthesizer",
    "TablePair": "adaptive_qs.evaluation.tables",
    "Workload": "adaptive_qs.workload.workload",
    "answer": "adaptive_qs.answering.api",
    "evaluate": "adaptive_qs.evaluation.evaluation",
    "plan": "adaptive_qs.answering.api",
    "workload_error": "adaptive_qs.evaluation.marginals",
}
"""Where the public names live; they are imported when first used, so that this import is fast."""

__all__ = [
    "Answers",
    "BatchPlan",
    "CodedTable",
    "Domain",
    "Evaluation",
    "QueryWorkload",
    "Release",
    "Schema",
    "Synthesizer",
    "TablePair",
    "Workload",
    "answer",
    "evaluate",
    "plan",
    "workload_error",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("adaptive_qs.release.statement").package_version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
