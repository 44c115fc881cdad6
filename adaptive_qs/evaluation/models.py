"""Train on synthetic, test on real: what models lose that learn from synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import as_integer, shown
from adaptive_qs.domain import Attribute
from adaptive_qs.errors import DataError, InputError
from adaptive_qs.evaluation import checks
from adaptive_qs.evaluation.checks import Check, Comparison, Finding, Word
from adaptive_qs.evaluation.tables import TablePair, in_batches
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import counted, decimals, quoted, share, short, significant
from adaptive_qs.table.coded import CodedTable

if TYPE_CHECKING:  # slow to import: only runs with models need it
    from sklearn.pipeline import Pipeline

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

SEEDS, MAX_REPEATS = 2**32, 100
"""Number of seeds of scikit-learn, and maximum number of splits."""


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
        self._check("repeats", 1, MAX_REPEATS)
        self._check("max_rows", 100)
        self._check("seed", 0, SEEDS - self.repeats)

    def _check(self, name: str, least: int, most: float = math.inf) -> None:
        found = as_integer(value := getattr(self, name))
        if found is None or not least <= found <= most:
            needed = f"at least {least}" if most == math.inf else f"{least} to {most:,}"
            raise InputError(f"{name} is {shown(value)}: give {needed}")
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
        limitations: what a reader has to know, such as classes that do not count.
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


# The protocol.

LEAST_ROWS = 5
"""Minimum number of rows of a table that models are trained on."""
TEST_SHARE = 0.3
"""Share of the true rows that models are tested on, if no rows were held out."""


def measure_utility(
    true: CodedTable,
    synthetic: CodedTable,
    settings: ModelSettings,
    workers: int = 1,
    progress: StepProgress | None = None,
    held_out: CodedTable | None = None,
) -> Utility:
    """Train models on either table and test them on true rows; owner only.

    In each repeat one model learns from true rows and one from equally many synthetic rows, and
    both are judged on the same other true rows (TSTR: Esteban, Hyland, Rätsch 2017). Features are
    codes of the schema. The synthetic table was made from all true rows, those tested on included.
    That is the usual protocol; `held_out` rows avoid it.

    Args:
        true: the private rows.
        synthetic: rows over the same domain.
        settings: target, seed, repeats and size.
        workers: threads.
        progress: called with the models trained and in all.
        held_out: true rows that the synthetic table was not made from, to test on.

    Raises:
        DataError: the domains differ, a table has too few rows, or the target cannot be predicted.
    """
    for other in (synthetic, *(() if held_out is None else (held_out,))):
        TablePair(true, other)
    if min(true.num_rows, synthetic.num_rows) < LEAST_ROWS:
        raise DataError("a table has too few rows to train a model on: give larger ones")
    target = find_target(true, str(settings.target))
    splits = _draw_splits(true, synthetic, held_out, target, settings)
    attributes = [true.domain.attributes[i] for i in target.others(true)]
    tasks = [
        partial(_train_and_test, attributes, target.classes, split, settings.seed + k)
        for k, split in enumerate(splits)
    ]
    real, made = map(Spread.from_values, zip(*run_tasks(tasks, workers, progress)))
    (_, labels), _, (_, truth) = splits[0]
    trained, tested = len(labels), len(truth)
    notes: list[str] = []
    if held_out is None:
        notes.append(
            "the test rows were also used to make the synthetic table, so scores can be too high; "
            "a control table avoids this"
        )
    notes += target.limitations
    notes.append("models see codes of the schema: values inside a bin are not distinguished")
    if trained == settings.max_rows:
        notes.append(f"models were trained on {trained:,} rows at most, to save time")
    name, rows = true.domain.names[target.attribute], (trained, trained)
    return Utility(name, target.classes, rows, tested, real, made, tuple(notes))


Sample = tuple[Array, Codes]
"""Features of the rows that a model sees, shape (rows, columns but the target), and classes."""
Split = tuple[Sample, Sample, Sample]
"""Samples of one repeat: true and synthetic rows to train on, and true rows to test both."""


def _draw_splits(
    true: CodedTable,
    synthetic: CodedTable,
    held_out: CodedTable | None,
    target: Target,
    settings: ModelSettings,
) -> list[Split]:
    """Return one split for each repeat, of rows whose class is kept.

    30 % of the true rows, drawn with the shares of the classes kept, are tested on. The others are
    trained on, and equally many synthetic rows. Held-out rows replace the 30 %.
    """
    from sklearn.model_selection import StratifiedShuffleSplit

    real, made, other = (
        _sample(table, target)
        for table in (true, synthetic, true if held_out is None else held_out)
    )
    rows = len(real[1])
    test_rows = round(TEST_SHARE * rows)
    train_rows = min(rows - test_rows, len(made[1]), settings.max_rows)
    test_rows = min(test_rows, settings.max_rows)
    if min(train_rows, test_rows, len(other[1])) < target.classes:
        raise DataError(
            f"too few rows to predict {true.domain.names[target.attribute]!r}: every table needs "
            "more rows than the target has classes; give larger ones or name another target"
        )
    rng = np.random.default_rng(settings.seed)
    shuffle = StratifiedShuffleSplit(
        settings.repeats, train_size=train_rows, test_size=test_rows, random_state=settings.seed
    )
    splits = []
    for train, test in shuffle.split(real[1], real[1]):
        if held_out is not None:
            test = rng.permutation(len(other[1]))[: settings.max_rows]
        drawn = rng.permutation(len(made[1]))[:train_rows]
        chosen = ((real, train), (made, drawn), (other, test))
        first, second, third = ((features[k], labels[k]) for (features, labels), k in chosen)
        splits.append((first, second, third))
    return splits


def _sample(table: CodedTable, target: Target) -> Sample:
    """Return all rows of a table whose class is kept."""
    labels = target.labels(table)
    rows = labels >= 0
    columns = [table.columns[i][rows] for i in target.others(table)]
    return np.column_stack(columns).astype(np.float64), labels[rows]


def _train_and_test(
    attributes: Sequence[Attribute], classes: int, split: Split, seed: int
) -> list[float]:
    """Return the areas of a model of true rows, and of one of synthetic rows."""
    areas = []
    *training, (tested, truth) = split
    for features, labels in training:
        probabilities = np.zeros((len(truth), classes))
        if len(np.unique(labels)) > 1:
            model = gradient_boosting(attributes, seed).fit(features, labels)
            probabilities[:, model.classes_] = model.predict_proba(tested)
        areas.append(auroc(probabilities, truth))
    return areas


MAX_CATEGORIES = 255
"""Codes of an unordered attribute that boosted trees distinguish; the rarest share one."""


def gradient_boosting(attributes: Sequence[Attribute], seed: int) -> Pipeline:
    """Return histogram gradient boosting, which knows which attributes are unordered.

    Few small trees with a penalty: without one, steps for rare classes of a target with many
    overshoot. No early stopping, so that small and large tables are treated alike.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    codes = OrdinalEncoder(
        max_categories=MAX_CATEGORIES, handle_unknown="use_encoded_value", unknown_value=np.nan
    )
    kinds = [[i for i, a in enumerate(attributes) if a.ordered == k] for k in (False, True)]
    parts = [("unordered", codes, kinds[0]), ("ordered", "passthrough", kinds[1])]
    model = HistGradientBoostingClassifier(
        max_iter=30,
        learning_rate=0.15,
        max_leaf_nodes=15,
        l2_regularization=1.0,
        categorical_features=list(range(len(kinds[0]))) or None,
        early_stopping=False,
        random_state=seed,
    )
    return make_pipeline(ColumnTransformer(parts), model)


def run_tasks(
    tasks: Sequence[Callable[[], Any]], workers: int, progress: StepProgress | None = None
) -> list[Any]:
    """Return the results of all tasks, in order, each computed on one thread.

    scikit-learn adds floating-point numbers in an order that depends on its number of threads, so
    this also makes results the same for any number of workers.
    """
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()

    def alone(batch: Sequence[Callable[[], Any]]) -> list[Any]:
        controller.limit(limits=1)  # OpenMP keeps its limit for each thread
        return [task() for task in batch]

    with controller.limit(limits=1):
        return list(in_batches(alone, tasks, workers, progress, 1))


def auroc(probabilities: Array, labels: Codes) -> float:
    """Return the mean over the classes that occur, each against the rest; 0.5 for a single one.

    Hand and Till (2001) call this the one-versus-rest average; with two classes it is the usual
    area. Equal probabilities, as for a class that the model does not know, give 0.5.
    """
    from sklearn.metrics import roc_auc_score

    present = np.unique(labels)
    if len(present) < 2:
        return CHANCE
    return float(np.mean([roc_auc_score(labels == c, probabilities[:, c]) for c in present]))


# The column that models predict.

MAX_CLASSES, MAX_ORDERED_CLASSES = 20, 10
"""Maximum number of classes, and of codes of an ordered target that is not grouped."""
GROUPS = 4
"""Maximum number of classes that an ordered target is grouped into."""
MIN_CLASS_ROWS = 10
"""Number of true rows from which a class is kept: some to train on and some to test on."""


@dataclass(frozen=True, eq=False)
class Target:
    """A column to predict.

    Attributes:
        attribute: its position in the domain.
        class_of: shape (codes of the attribute,): the class of each code, -1 if it does not count.
        classes: number of classes.
        limitations: what was grouped, and what does not count.
    """

    attribute: int
    class_of: Codes
    classes: int
    limitations: tuple[str, ...]

    def labels(self, table: CodedTable) -> Codes:
        """Return the class of every row, -1 for rows that do not count."""
        labels: Codes = self.class_of[table.columns[self.attribute]]
        return labels

    def others(self, table: CodedTable) -> list[int]:
        """Return the positions of all other columns."""
        return [i for i in range(len(table.domain)) if i != self.attribute]


def find_target(true: CodedTable, name: str) -> Target:
    """Return the column of this name as a target.

    Codes in fewer than 10 true rows do not count. An ordered column with more than 10 codes in
    use is grouped into up to 4 classes of about equally many true rows.

    Raises:
        DataError: the column is unknown, has one class only, or too many.
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
    used = int(np.count_nonzero(counts))
    notes, class_of = [], np.arange(attribute.size)
    if used < 2:
        raise refuse("has one value only: name another column")
    if attribute.ordered and used > MAX_ORDERED_CLASSES:
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
    numbers = np.where(kept, np.cumsum(kept) - 1, -1)
    return Target(position, numbers[class_of], classes, tuple(notes))


def _cut_at_quantiles(counts: Codes) -> Codes:
    """Return a class for each code, cut at the quantiles of the rows."""
    below = np.cumsum(counts)
    shares = np.arange(1, GROUPS) / GROUPS * below[-1]
    before_last, last = np.flatnonzero(counts)[-2:].tolist()
    cuts = {min(int(np.searchsorted(below, share)), last) for share in shares}
    cuts = {before_last if cut == last else cut for cut in cuts}
    classes: Codes = np.searchsorted(sorted(cuts), np.arange(len(counts)), side="left")
    return classes


# The check of models.

SMALL_LOSS, LARGE_LOSS = 0.1, 0.3
"""Parts of a model's gain over chance."""


class ModelsCheck(Check):
    """What models lose that are trained on synthetic rows instead of true ones."""

    name, title, uses = "utility", "Models", ("models",)
    rules = (
        Word("no gain", "plain", lambda loss: loss is None),
        Word("large loss", "poor", lambda loss: loss > LARGE_LOSS),
        Word("some loss", "fair", lambda loss: loss > SMALL_LOSS),
        Word("small loss", "good"),
    )

    def measure(self, comparison: Comparison) -> Utility | None:
        """Train models, if a target was named."""
        if comparison.settings.target is None:
            return None
        pair, steps = comparison.pair, comparison.steps("models")
        held_out = None if comparison.control is None else comparison.control[0]
        tables, game = (pair.true, pair.synthetic), (comparison.settings, comparison.workers)
        return measure_utility(*tables, *game, steps, held_out)

    def judge(self, facts: Utility | None, evaluation: Any) -> Finding:
        """Compare the gains of both models."""
        if facts is None:
            text = "No model was trained, so its loss is not known."
            advice = ("Name a target column to train models.",)
            return Finding("plain", "not requested", text, advice=advice)
        made, real = (significant(each.mean) for each in (facts.synthetic, facts.real))
        kept = facts.kept
        text = f"Trained on synthetic rows to predict {quoted(facts.target)}, gradient boosting "
        text += f"reaches AUROC {made} instead of {real}"
        if kept is None:
            text += ". There was nothing to learn from the true rows."
        else:
            text += f" ({share(max(kept, 0.0), 2)} of its gain over chance)."
        found = self.word_for(None if kept is None else 1 - kept)
        figures = _figures(facts, evaluation.comparison.control is not None)
        return Finding(*found, text, figures=figures, notes=facts.limitations)


def _figures(facts: Utility, held_out: bool) -> tuple[checks.Figure, ...]:
    real, synthetic = facts.train_rows
    tested = "rows of the control table" if held_out else "other true rows"
    lines = (
        ("target", f"{short(facts.target)} ({counted(facts.classes, 'class', 'classes')})"),
        ("trained on", f"{real:,} true or {synthetic:,} synthetic rows, tested on "
         f"{facts.test_rows:,} {tested}"),
        ("score", "AUROC of gradient boosting, 0.5 by chance"),
    )  # fmt: skip
    columns = (
        checks.number("trained on true"), checks.number("on synthetic"),
        checks.number("kept", partial(share, digits=2)),
    )  # fmt: skip
    caption = "AUROC on true rows: mean ± standard deviation over repeats. Kept: part of the gain "
    caption += "over chance"
    row = (facts.real, facts.synthetic, facts.kept)
    return checks.Facts(lines), checks.Table(caption, columns, [row], "scores")
