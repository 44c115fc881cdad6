"""Train on synthetic, test on real: what models lose that learn from synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.tables import Numbers, in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import counted, decimals, quoted, share, short, significant
from adaptive_qs.table.coded import CodedTable

if TYPE_CHECKING:  # slow to import: only runs with models need it
    from sklearn.pipeline import Pipeline

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ModelSettings:
    """How models are trained.

    Attributes:
        target: the column to predict; None for no models.
        seed: of splits, samples and models; each repeat adds one. It protects nothing.
        repeats: splits that every model is trained and tested on.
        max_rows: maximum number of rows that a model is trained on, and tested on.

    Raises:
        InputError: a number is out of its range.
    """

    target: str | None = None
    seed: int = 0
    repeats: int = 5
    max_rows: int = 10_000

    def __post_init__(self) -> None:
        for name, least, most in (("repeats", 1, 100), ("max_rows", 100, math.inf), ("seed", 0, 0)):
            found = as_integer(value := getattr(self, name))
            most = 2**32 - self.repeats if name == "seed" else most  # seeds of scikit-learn
            if found is None or not least <= found <= most:
                needed = f"at least {least}" if most == math.inf else f"{least} to {most:,}"
                raise InputError(f"{name} is {shown(value)}. Use {needed}.")
            object.__setattr__(self, name, found)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a score over repeats (0 for a single one)."""

    mean: float
    std: float
    repeats: int

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread:
        """Summarise a score."""
        std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), std, len(values))

    def __str__(self) -> str:
        return decimals(self.mean) + f" ± {decimals(self.std)}" * (self.repeats > 1)


CHANCE, LEAST_GAIN_KEPT = 0.5, 0.01
"""Area under the curve of a guess, and gain of models of true rows from which there is something to
keep."""


@dataclass(frozen=True)
class Utility:
    """The areas under the curve that boosted trees reach on true rows; owner only.

    Attributes:
        target: the predicted column.
        classes: number of its classes.
        train_rows: number of true and of synthetic rows that models were trained on.
        test_rows: number of true rows that all were tested on.
        real, synthetic: areas of models trained on true and on synthetic rows; a guess has 0.5.
        limitations: for the reader, such as classes that do not count.
    """

    target: str
    classes: int
    train_rows: tuple[int, int]
    test_rows: int
    real: Spread
    synthetic: Spread
    limitations: tuple[str, ...]

    @property
    def kept(self) -> float | None:
        """The part of the gain over chance that synthetic rows keep; None without gain."""
        gain = self.real.mean - CHANCE
        return (self.synthetic.mean - CHANCE) / gain if gain > LEAST_GAIN_KEPT else None


LEAST_ROWS, TEST_SHARE = 5, 0.3
"""Minimum number of rows of a table that models are trained on, and share of the true rows that
models are tested on."""
Sample = tuple[Numbers, Codes]
"""Features of rows, shape (rows, columns but the target), and their classes."""


def measure_utility(
    true: CodedTable,
    synthetic: CodedTable,
    settings: ModelSettings,
    workers: int = 1,
    progress: StepProgress | None = None,
) -> Utility:
    """Train models on either table and test them on true rows; owner only.

    In each repeat one model learns from true rows and one from equally many synthetic rows, and
    both are judged on the same other true rows (TSTR: Esteban, Hyland, Rätsch 2017). Features are
    codes of the schema. The synthetic table was made from all true rows, those tested on included:
    that is the usual protocol.

    Raises:
        DataError: a table has too few rows, or the target cannot be predicted.
    """
    if min(true.num_rows, synthetic.num_rows) < LEAST_ROWS:
        raise DataError("a table has too few rows to train a model on. Use larger tables.")
    target = find_target(true, str(settings.target))
    samples = [_sample(table, target) for table in (true, synthetic, true)]
    splits = _draw_splits(samples, target, settings)
    others = [a for i, a in enumerate(true.domain.attributes) if i != target.attribute]
    ordered = [a.ordered for a in others]
    tasks = [(ordered, samples, split, settings.seed + k) for k, split in enumerate(splits)]
    real, made = map(Spread.from_values, zip(*train_all(tasks, workers, progress)))
    trained, _, tested = map(len, splits[0])
    notes = [
        "the test rows were also used to make the synthetic table, so scores can be too high",
        *target.limitations,
        "models see codes of the schema: values inside a bin are not distinguished",
    ]
    if trained == settings.max_rows:
        notes.append(f"models were trained on {trained:,} rows at most, to save time")
    name, rows = true.domain.names[target.attribute], (trained, trained)
    return Utility(name, target.classes, rows, tested, real, made, tuple(notes))


def _sample(table: CodedTable, target: Target) -> Sample:
    labels = target.labels(table)
    rows = labels >= 0
    columns = [c[rows] for i, c in enumerate(table.columns) if i != target.attribute]
    return np.column_stack(columns).astype(np.float64), labels[rows]


def _draw_splits(
    samples: Sequence[Sample], target: Target, settings: ModelSettings
) -> list[tuple[Codes, Codes, Codes]]:
    """Return true rows and synthetic rows to train on, and rows to test both, for each repeat.

    30 % of the true rows, drawn with the shares of the classes kept, are tested on. The others are
    trained on, and equally many synthetic rows.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    classes, made, _ = (labels for _, labels in samples)
    test_rows = round(TEST_SHARE * len(classes))
    train_rows = min(len(classes) - test_rows, len(made), settings.max_rows)
    test_rows = min(test_rows, settings.max_rows)
    if min(train_rows, test_rows) < target.classes:
        raise DataError(
            f"too few rows to predict {settings.target!r}: every table needs more rows than the "
            "target has classes; give larger ones or name another target"
        )
    rng = np.random.default_rng(settings.seed)
    shuffle = StratifiedShuffleSplit(
        settings.repeats, train_size=train_rows, test_size=test_rows, random_state=settings.seed
    )
    splits = []
    for train, test in shuffle.split(classes, classes):
        splits.append((train, rng.permutation(len(made))[:train_rows], test))
    return splits


def train_all(tasks: Sequence[Any], workers: int, progress: StepProgress | None) -> list[Any]:
    """Return the areas of all repeats, each computed on one thread.

    scikit-learn adds floating-point numbers in an order that depends on its number of threads, so
    this also makes results the same for any number of workers.
    """
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()

    def alone(batch: Sequence[Any]) -> list[Any]:
        controller.limit(limits=1)  # OpenMP keeps its limit for each thread
        return [_train_and_test(*task) for task in batch]

    with controller.limit(limits=1):
        return list(in_batches(alone, tasks, workers, progress, 1))


def _train_and_test(
    ordered: Sequence[bool], samples: Sequence[Sample], split: Sequence[Codes], seed: int
) -> list[float]:
    *training, (tested, truth) = (
        (x[rows], labels[rows]) for (x, labels), rows in zip(samples, split)
    )
    areas = []
    for features, labels in training:
        probabilities = np.zeros((len(truth), 1 + max(truth.max(), labels.max())))
        if len(np.unique(labels)) > 1:
            model = gradient_boosting(ordered, seed).fit(features, labels)
            probabilities[:, model.classes_] = model.predict_proba(tested)
        areas.append(auroc(probabilities, truth))
    return areas


def gradient_boosting(ordered: Sequence[bool], seed: int) -> Pipeline:
    """Return histogram gradient boosting, which knows which attributes are unordered.

    Few small trees with a penalty: without one, steps for rare classes of a target with many
    overshoot. No early stopping, so that small and large tables are treated alike.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    codes = OrdinalEncoder(  # trees distinguish 255 categories; the rarest share one
        max_categories=255, handle_unknown="use_encoded_value", unknown_value=np.nan
    )
    kinds = [[i for i, kind in enumerate(ordered) if kind == k] for k in (False, True)]
    parts = [("unordered", codes, kinds[0]), ("ordered", "passthrough", kinds[1])]
    model = HistGradientBoostingClassifier(
        max_iter=30, learning_rate=0.15, max_leaf_nodes=15, l2_regularization=1.0,
        categorical_features=list(range(len(kinds[0]))) or None, early_stopping=False,
        random_state=seed,
    )  # fmt: skip
    return make_pipeline(ColumnTransformer(parts), model)


def auroc(probabilities: Numbers, labels: Codes) -> float:
    """Return the mean over the classes that occur, each against the rest; 0.5 for a single one.

    Hand and Till (2001) call this the one-versus-rest average; with two classes it is the usual
    area. Equal probabilities, as for a class that the model does not know, give 0.5.
    """
    from sklearn.metrics import roc_auc_score

    present = np.unique(labels)
    if len(present) < 2:
        return CHANCE
    return float(np.mean([roc_auc_score(labels == c, probabilities[:, c]) for c in present]))


MAX_CLASSES, MAX_ORDERED_CLASSES, GROUPS = 20, 10, 4
"""Maximum number of classes, of codes of an ordered target that is not grouped, and of its groups
otherwise."""
MIN_CLASS_ROWS = 10
"""Number of true rows from which a class is kept: some to train on and some to test on."""


@dataclass(frozen=True, eq=False)
class Target:
    """A column to predict.

    Attributes:
        attribute: its position in the domain.
        class_of: shape (codes of the attribute,): the class of each code, -1 if it does not count.
        limitations: what was grouped, and what does not count.
    """

    attribute: int
    class_of: Codes
    limitations: tuple[str, ...]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.class_of.max()) + 1

    def labels(self, table: CodedTable) -> Codes:
        """Return the class of every row, -1 for rows that do not count."""
        return self.class_of[table.columns[self.attribute]]


def find_target(true: CodedTable, name: str) -> Target:
    """Return the column of this name as a target.

    Codes in fewer than 10 true rows do not count. An ordered column with more than 10 codes in
    use is grouped into up to 4 classes of about equally many true rows. Raise DataError if the
    column is unknown, has one class only, or too many.
    """

    def refuse(reason: str) -> DataError:
        return DataError(f"target {name!r} {reason}")

    if name not in true.domain.names:
        raise refuse("is not in the schema: check the spelling")
    if len(true.domain) == 1:
        raise refuse("is the only column: nothing is left to predict it from")
    position = true.domain.names.index(name)
    attribute = true.domain.attributes[position]
    counts = np.bincount(true.columns[position], minlength=attribute.size)
    notes, class_of = [], np.arange(attribute.size)
    if np.count_nonzero(counts) < 2:
        raise refuse("has one value only: name another column")
    if attribute.ordered and np.count_nonzero(counts) > MAX_ORDERED_CLASSES:
        class_of = _cut_at_quantiles(counts)
        groups = counted(int(class_of.max()) + 1, "class", "classes")
        notes.append(
            f"the target {name!r} is ordered and has many values: it was grouped into {groups} at "
            "quantiles of the true table"
        )
        counts = np.bincount(class_of, weights=counts).astype(np.int64)
    kept = counts >= MIN_CLASS_ROWS
    classes = int(kept.sum())
    if classes < 2:
        few = f"has fewer than two classes of {MIN_CLASS_ROWS} rows or more"
        raise refuse(f"{few}: name another column")
    if classes > MAX_CLASSES:
        many = f"is unordered with more than {MAX_CLASSES} classes"
        raise refuse(f"{many}: name another column, or join its rare values in the schema")
    if rare := int((counts > 0).sum()) - classes:
        values = counted(rare, "value")
        notes.append(
            f"models do not use {values} of the target {name!r} with fewer than {MIN_CLASS_ROWS} "
            "true rows"
        )
    return Target(position, np.where(kept, np.cumsum(kept) - 1, -1)[class_of], tuple(notes))


def _cut_at_quantiles(counts: Codes) -> Codes:
    below = np.cumsum(counts)
    shares = np.arange(1, GROUPS) / GROUPS * below[-1]
    before_last, last = np.flatnonzero(counts)[-2:].tolist()
    cuts = {min(int(np.searchsorted(below, share)), last) for share in shares}
    cuts = {before_last if cut == last else cut for cut in cuts}
    return np.searchsorted(sorted(cuts), np.arange(len(counts)), side="left")


SMALL_LOSS, LARGE_LOSS = 0.1, 0.3
"""Parts of a model's gain over chance."""


class ModelsCheck(Check):
    """What models lose that are trained on synthetic rows instead of true ones."""

    name, title, uses = "utility", "Models", ("models",)
    rules = (
        Word("no gain", "plain", lambda kept: kept is None),
        Word("large loss", "poor", lambda kept: 1 - kept > LARGE_LOSS),
        Word("some loss", "fair", lambda kept: 1 - kept > SMALL_LOSS),
        Word("small loss", "good"),
    )

    def measure(self, comparison: Comparison) -> Utility | None:
        if comparison.settings.target is None:
            return None
        pair, steps = comparison.pair, comparison.steps("models")
        game = (comparison.settings, comparison.workers, steps)
        return measure_utility(pair.true, pair.synthetic, *game)

    def judge(self, facts: Utility | None, evaluation: Any) -> Finding:
        """Compare the gains of both models."""
        if facts is None:
            text = "No model was trained, so its loss is not known."
            advice = ("Name a target column to train models.",)
            return Finding("plain", "not requested", text, advice=advice)
        made, real = (significant(each.mean) for each in (facts.synthetic, facts.real))
        text = f"Trained on synthetic rows to predict {quoted(facts.target)}, gradient boosting "
        text += f"reaches AUROC {made} instead of {real}"
        if facts.kept is None:
            text += ". There was nothing to learn from the true rows."
        else:
            text += f" ({share(max(facts.kept, 0.0), 2)} of its gain over chance)."
        figures = _figures(facts)
        return Finding(*self.word_for(facts.kept), text, figures=figures, notes=facts.limitations)


def _figures(facts: Utility) -> tuple[checks.Figure, ...]:
    real, synthetic = facts.train_rows
    lines = (
        ("target", f"{short(facts.target)} ({counted(facts.classes, 'class', 'classes')})"),
        ("trained on", f"{real:,} true or {synthetic:,} synthetic rows, tested on "
         f"{facts.test_rows:,} other true rows"),
        ("score", "AUROC of gradient boosting, 0.5 by chance"),
    )  # fmt: skip
    columns = (
        checks.number("trained on true"), checks.number("on synthetic"),
        checks.number("kept", partial(share, digits=2)),
    )  # fmt: skip
    caption = "AUROC on true rows: mean ± standard deviation over repeats. Kept: part of the gain "
    caption += "over chance"
    row = (facts.real, facts.synthetic, facts.kept)
    return checks.Facts(lines), checks.Table(caption, columns, [row])
