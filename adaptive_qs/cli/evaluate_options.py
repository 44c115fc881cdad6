"""The options that `evaluate` has to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from adaptive_qs.cli.options import option

_MODELS, _ATTACK, _OUTPUT = "Models", "Membership attack", "Output"

WorkloadFile = Annotated[
    Path | None,
    option(
        "--workload", "FILE", "Workload file: the marginals or other queries that matter.", None
    ),
]
Rules = Annotated[
    list[str] | None,
    option(
        "--rule",
        "TEXT",
        'A rule to check, such as "start <= end" or "city determines country"; repeat it for more.',
        None,
    ),
]
Report = Annotated[
    Path | None,
    option(
        "--report",
        "FILE",
        "Also write one self-contained HTML page, for the owner alone; trains models, too.",
        _OUTPUT,
    ),
]
Target = Annotated[
    str | None,
    option(
        "--target",
        "COLUMN",
        "Train models that predict this column on either table, and test them on true rows.",
        _MODELS,
        "with --report, a column that the program proposes",
    ),
]
NoModels = Annotated[
    bool, option("--no-models", None, "Leave the models out of the report.", _MODELS)
]
Repeats = Annotated[
    int, option("--repeats", "N", "Splits that models are trained and tested on.", _MODELS, "5")
]
Seed = Annotated[
    int,
    option("--seed", "N", "Seed of the splits, the models and the attacks.", _MODELS, "0"),
]
Control = Annotated[
    Path | None,
    option(
        "--control",
        "FILE",
        "Rows of the same kind that SYNTHETIC was not made from: attacks try to tell them from "
        "those of TRUE, and models are tested on them.",
        _ATTACK,
    ),
]
Release = Annotated[
    Path | None,
    option(
        "--release",
        "FILE",
        "Release bundle that SYNTHETIC comes from, for its privacy promise.",
        _ATTACK,
        "the statement that lies beside SYNTHETIC",
    ),
]
