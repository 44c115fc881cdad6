"""How well models that learn from synthetic values predict true ones, with and without a target.

Two thirds of the rows are made into a table of all pairs, once as they are and once serving the
target. Gradient boosting (scikit-learn's defaults) learns from true and from synthetic values and
is judged on the other third. Schemas are what ``propose`` drafts, or come with the table.
``gap`` is the area under the curve that is lost. Errors are mean L1 distances between normalised
marginals of codes. Writes results/target.*.

    python -m scripts.speed.benchmark_target --data FOLDER
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from adaptive_qs import Synthesizer
from adaptive_qs.evaluation.marginals import workload_error
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload
from scripts.results import write_results

DELTA = 1e-9
ADULT = Path(__file__).parents[2] / "datasets" / "adult" / "adult.csv.gz"
TARGETS = {"adult": "income", "br2000": "c13", "creditcard": "has_default"}
"""The column to predict."""


def main(
    data: Annotated[Path, typer.Option(help="Folder of tables.")],
    table: Annotated[list[str] | None, typer.Option(help="Tables; all of them by default.")] = None,
    epsilon: Annotated[list[float], typer.Option()] = [1.0, 10.0],  # noqa: B006
    seeds: int = 5,
    out: Annotated[str, typer.Option(help="File in results/; empty: none.")] = "target",
) -> None:
    rows: list[dict[str, Any]] = []
    for name in table or TARGETS:
        frame, schema = load(name, data)
        train, test = train_test_split(frame, test_size=1 / 3, random_state=0)
        for each in epsilon:
            for seed in range(1, seeds + 1):
                for served in (False, True):
                    rows.append({"table": name, "epsilon": each, "seed": seed, "served": served})
                    rows[-1] |= compared(train, test, schema, TARGETS[name], each, seed, served)
                    typer.echo(json.dumps(rows[-1]))
    config = {"delta": DELTA, "ways": 2, "noise": "exact, seeded", "workers": 1}
    if out:
        write_results(out, rows, config, list(range(1, seeds + 1)), rows)


def load(name: str, data: Path) -> tuple[pd.DataFrame, Schema]:
    """Return a table as its file has it, and its schema."""
    if (domain := data / name / "domain.json").exists() and name != "adult":
        return pd.read_csv(data / name / f"{name}.csv"), Schema.load(domain)
    frame = pd.read_csv(ADULT if name == "adult" else data / "raw" / f"{name}.csv.gz")
    return frame, propose(frame)


def compared(
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    target: str,
    epsilon: float,
    seed: int,
    served: bool,
) -> dict[str, Any]:
    """One table: areas under the curve of models of true and of synthetic rows, and errors."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = Synthesizer(
            epsilon=epsilon, delta=DELTA, insecure_seed=seed, unreviewed_schema=True, workers=1,
            workload=2, target=target if served else None,
        ).fit(train, schema=schema)  # fmt: skip
        made = run.release_.draw(seed=seed).table()
    seconds = time.process_time() - start
    true, synthetic = (read_table(each, run.schema_) for each in (train, made))
    pairs = Workload.all_ways(true.domain, 2)
    (attribute,) = true.domain.clique([target])
    own = Workload(true.domain, {clique: 1.0 for clique in pairs.cliques if attribute in clique})
    areas = [area(each, test, target) for each in (train, made.to_pandas())]
    return {
        "auroc_true": round(areas[0], 4),
        "auroc_table": round(areas[1], 4),
        "gap": round(areas[0] - areas[1], 4),
        "error_pairs": round(workload_error(true, synthetic, pairs).mean_l1, 4),
        "error_target_pairs": round(workload_error(true, synthetic, own).mean_l1, 4),
        "rounds": len(run.release_.rounds),
        "cpu_seconds": round(seconds, 1),
    }


def area(train: pd.DataFrame, test: pd.DataFrame, target: str) -> float:
    """Return the area under the curve of a model of some rows that predicts other rows."""
    texts = [name for name in test if test[name].dtype.kind == "O" and name != target]
    every = pd.concat([train, test])
    kinds = {name: pd.CategoricalDtype(every[name].dropna().unique()) for name in texts}
    learned, judged = (each.astype(kinds).drop(columns=target) for each in (train, test))
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    model.fit(learned, train[target].astype(str))
    yes = test[target].astype(str) == model.classes_[1]
    return float(roc_auc_score(yes, model.predict_proba(judged)[:, 1]))


if __name__ == "__main__":
    typer.run(main)
