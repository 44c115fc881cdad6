"""The verdict: a few sentences made from the numbers by the rules in ``limits``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation import limits as limit
from adaptive_qs.evaluation.chance import chance_l1, fresh_sample_l1, sparse_share
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.limits import Grade, word_for
from adaptive_qs.evaluation.marginals import OrderedError
from adaptive_qs.evaluation.results import MEASURES, Membership, kept_part
from adaptive_qs.evaluation.scale import (
    AssociationChange,
    AssociationChanges,
    Place,
    WorkloadScale,
    association_changes,
    gone_parts,
    place_of_queries,
    workload_scale,
)
from adaptive_qs.evaluation.sentences import (
    FEW_NAMED,
    Sentence,
    are,
    broken_rules,
    by_sentence,
    group_means_sentence,
    leading,
    named,
    rows_sentence,
    uses_sentence,
    values_sentence,
    worst_grade,
)
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import (
    combination,
    counted,
    decimals,
    quoted,
    share,
    short,
    signed,
    significant,
)
from adaptive_qs.release.statement import Statement

# What the verdict is made from, computed once for all who show it.


@dataclass(frozen=True)
class ColumnPair:
    """One column in both tables.

    Attributes:
        number: its position in the schema, from 1.
        name: of the column.
        codes: their number.
        variation: share of the rows that would have to change their code.
        fresh: the same expected of a fresh sample.
        doubt: variation beyond that of a fresh sample which chance and the estimate explain.
        shares: of the codes, in the true and in the synthetic table.
    """

    number: int
    name: str
    codes: int
    variation: float
    fresh: float
    doubt: float
    shares: tuple[NDArray[np.float64], NDArray[np.float64]]


def column_pairs(pair: TablePair) -> list[ColumnPair]:
    """Every column, the worst first."""
    rows = pair.true.num_rows, pair.synthetic.num_rows
    found = []
    for number, (name, true, made) in enumerate(zip(pair.domain.names, *pair.margins), 1):
        shares = true / rows[0], made / rows[1]
        variation = float(np.abs(shares[0] - shares[1]).sum() / 2)
        fresh = fresh_sample_l1(true, rows[1]) / 2
        doubt = limit.STEP_ERROR * fresh + chance_l1(*rows, sparse_share(true)) / 2
        found.append(ColumnPair(number, name, true.size, variation, fresh, doubt, shares))
    return sorted(found, key=lambda column: (-column.variation, column.number))


@dataclass(frozen=True, eq=False)
class Findings:
    """An evaluation and what its numbers mean; owner only.

    Attributes:
        evaluation: of the tables.
        scale: of the workload's marginals.
        columns: every single column, the largest error first.
        associations: what became of them.
    """

    evaluation: Evaluation
    scale: WorkloadScale
    columns: tuple[ColumnPair, ...]
    associations: AssociationChanges


def findings(
    evaluation: Evaluation, workers: int = 1, progress: StepProgress | None = None
) -> Findings:
    """What an evaluation's numbers mean; no model is trained for it."""
    scale = workload_scale(evaluation, workers, progress)
    columns = tuple(column_pairs(evaluation.pair))
    return Findings(evaluation, scale, columns, association_changes(evaluation))


# How close marginals and queries are.


def marginals_sentence(evaluation: Evaluation, scale: WorkloadScale) -> Sentence:
    """How close the workload's marginals are, on which scale."""
    found = evaluation.workload
    number = counted(len(found.per_clique), "marginal")
    subject = (
        f"The workload's {number}"
        if evaluation.queries is None
        else f"The {number} of the workload's columns"
    )
    differ = "differs" if len(found.per_clique) == 1 else "differ"
    start = f"{subject} {differ} by {significant(found.mean_l1)} on average"
    measured = (
        f"{start} (L1: 0 is equal, 2 has nothing in common): {share(found.mean_l1 / 2)} of the "
        "rows would have to move to another cell."
    )
    grade = word_for("marginals", scale.place)
    if not scale.per_clique:
        return Sentence(*grade, f"{measured} They are too large for a comparison.")
    rest = ""
    if not scale.all:
        rest = f" {len(scale.per_clique):,} of them, with mean error {significant(scale.l1)}, give "
        rest += "the scale."
    rest += f" A fresh sample of {counted(evaluation.pair.synthetic.num_rows, 'row')} would differ "
    rest += f"by about {significant(scale.fresh)}"
    if scale.vacuous:
        rest += (
            ". With so few rows chance alone may take a sample as far off as any table can be, so "
            "no grade is given. More rows would say more."
        )
    elif not scale.known:
        rest += (
            f". {share(scale.sparse, 2)} of the true rows lie in cells with fewer than {limit.FEW} "
            "of them: chance decides most of such an error, so no grade is given. Fewer columns at "
            "once, coarser bins or more rows would say more."
        )
    else:
        if scale.joint:
            rest += f", independent columns by {significant(scale.independent)}"
        rest += placed(scale.place)
    if scale.gone and len(scale.per_clique) > 1:
        names = [combination(attributes) for attributes in scale.gone]
        rest += f" {counted(len(names), 'marginal')} {are(len(names))} as far off as independent "
        rest += f"columns: {named(names, 'errors', FEW_NAMED)}."
    return Sentence(*grade, measured + rest, f"{start}.{rest}")


def queries_sentence(evaluation: Evaluation) -> Sentence | None:
    """The error of the workload's queries beside that of a fresh sample and of independent columns.

    None where the workload asks for marginals.
    """
    asked = evaluation.queries
    if asked is None:
        return None
    rows = evaluation.pair.true.num_rows
    number = leading(counted(asked.queries, "query", "queries"), "queries")
    text = (
        f"The workload's {number} {are(asked.queries)} off by "
        f"{share(asked.rmse)} of the rows ({significant(asked.rmse * rows)} of {rows:,}; root mean "
        f"square{', weighted' if asked.weighted else ''}), a fresh sample by about "
        f"{share(asked.fresh)}"
    )
    if asked.joint:
        text += f", independent columns by {share(asked.independent)}"
    place = place_of_queries(asked)
    text += placed(place)
    if gone := [part.title for part in gone_parts(asked)]:
        text += f" As far off as independent columns: {named(gone, 'queries')}."
    return Sentence(*word_for("queries", place), text)


def placed(place: Place) -> str:
    """Where an error stands, as the end of a sentence, and the limit that chance has raised."""
    if place.worse or (place.scaled and place.beyond >= 1):
        text = ": the table is no closer than independent columns."
    elif place.beyond <= 0:
        text = ": the table is as close as a fresh sample."
    elif place.scaled:
        text = f": the table is {share(place.beyond, 2)} of the way from the one to the other."
    else:
        between = "; the two are too close to each other to place the table between them."
        text = between if place.joint else "."
    if place.worse or not place.close < place.beyond <= place.allowed:
        return text
    usual, raised = f"{place.close}", f"{significant(place.allowed)} above a fresh sample"
    if place.scaled:
        usual, raised = share(place.close, 2), f"{share(place.allowed, 2)} of the way"
    return (
        f"{text} With so few rows chance alone may make such a difference, so the limit for "
        f'"close" is raised from {usual} to {raised}.'
    )


# Single columns, whole rows and associations.


def moved_means(evaluation: Evaluation) -> list[OrderedError]:
    """Ordered columns without known values whose mean code moved far, the furthest first."""
    rows = evaluation.pair.true.num_rows, evaluation.pair.synthetic.num_rows
    chance = math.sqrt(sum(1 / max(n, 1) for n in rows))
    least = max(limit.LARGE_SHIFT, limit.DOUBTFUL * chance)
    known = {c.column.name for c in evaluation.values}
    moved = [
        o for o in evaluation.ordered if abs(o.mean_shift) >= least and o.attribute not in known
    ]
    return sorted(moved, key=lambda o: -abs(o.mean_shift))


def columns_sentence(evaluation: Evaluation, columns: Sequence[ColumnPair]) -> Sentence:
    """Which single columns are off; these come with the largest error first."""
    off = [c for c in columns if c.variation - c.fresh >= max(limit.LOST_COLUMN, c.doubt)]
    moved, blind = moved_means(evaluation), is_blind(columns)
    text = "No single column is far off."
    if blind:
        text = "A table has so few rows that chance may explain any difference of single columns."
    if off:
        names = [
            f"{quoted(c.name)} ({share(c.variation, 2)}, a fresh sample {share(c.fresh, 2)})"
            for c in off
        ]
        text = (
            f"Single columns with at least {share(limit.LOST_COLUMN, 1)} of the rows more in "
            f"another cell than a fresh sample: {named(names, 'all-columns')}."
        )
        if (largest := columns[0]) not in off:
            text += (
                f" The largest error is that of {quoted(largest.name)}, "
                f"{share(largest.variation, 2)}, but it would be {share(largest.fresh, 2)} in a "
                "fresh sample."
            )
    if moved:
        shifts = [f"{quoted(o.attribute)} ({signed(o.mean_shift, 1)})" for o in moved]
        text += f" Means that moved, in standard deviations: {named(shifts, 'ordered')}."
    return Sentence(*word_for("columns", SimpleNamespace(off=off, moved=moved, blind=blind)), text)


def is_blind(columns: Sequence[ColumnPair]) -> bool:
    """Whether so few rows are there that chance may explain any difference of single columns."""
    return min((c.fresh + c.doubt for c in columns if c.codes > 1), default=0.0) >= limit.BLIND


def copies_sentence(evaluation: Evaluation) -> Sentence | None:
    """A warning where rows are the same, or more of them match than chance explains; else None.

    That few rows match is no measure of privacy, and nothing is said then.
    """
    rows = evaluation.rows
    grade, word = word_for("copies", rows)
    if not word:
        return None
    if rows.same:
        text = (
            "All synthetic rows are true rows, each as often as in the true table: this is the "
            "true table itself, as far as the schema shows. Nothing below is about a synthetic "
            "table; check which files were given."
        )
    else:
        text = (
            f"{share(rows.unique_matches)} of the synthetic rows equal a true row that occurs "
            f"once; independent columns would match {share(rows.expected_if_independent)} of all "
            f"rows, one half of the true table matches {share(rows.expected_if_redrawn)} of the "
            "other. Rows may have been copied: find out how the table was made. (Few matches would "
            "prove no privacy.)"
        )
    return Sentence(grade, word, text)


def dependence_sentence(found: AssociationChanges) -> Sentence:
    """What became of the associations: clear ones, columns that lost all of theirs, weak ones."""
    text = "No two columns of the true table depend clearly on each other."
    if found.blind:
        text = "A table has so few rows that most associations, or their loss, would not be seen."
    if found.clear:
        text = (
            f"{f'{text} ' if found.blind else ''}Of "
            f"{counted(found.clear, 'clear association')} between two columns, {found.kept:,} "
            f"kept {'its' if found.kept == 1 else 'their'} strength, {found.weaker:,} became "
            f"weaker, {found.stronger:,} stronger and "
        )
        lost = named([combination(change.names) for change in found.lost], "lost")
        number = len(found.lost)
        text += f"{number:,} {are(number)} lost: {lost}." if lost else "none is lost."
    if found.unconnected:
        names = named([quoted(name) for name in found.unconnected], "cut-off")
        verb = "comes" if len(found.unconnected) == 1 else "come"
        text += f" {names} {verb} out independent of all other columns."
    if number := len(found.weak_lost):
        names = named(_sized(found.weak_lost), "weak-lost", FEW_NAMED)
        text += f" Of {counted(found.weak, 'weak association')}, {number:,} {are(number)} lost: "
        text += f"{names}."
    names = named([combination(change.names) for change in found.made_up], "made-up")
    new, reason = [names] if names else [], ""
    if number := len(found.weak_made_up):
        (largest,) = _sized(found.weak_made_up[:1])
        phrase = leading(counted(number, "weak association"), "weak-made-up")
        new.append(f"{phrase}, {'the largest ' if number > 1 else ''}{largest}")
        reason = " Such associations arise where two columns were not measured together."
    if new:
        text += f" Only in the synthetic table: {', and '.join(new)}.{reason}"
    return Sentence(*word_for("associations", found), text)


def _sized(changes: Sequence[AssociationChange]) -> list[str]:
    """The columns with Cramér's V in the true table, and in the synthetic one."""
    return [
        f"{combination(c.names)} (V {decimals(c.true)}, now {decimals(c.synthetic)})"
        for c in changes
    ]


# What models lose that are trained on synthetic rows, and what attacks gain.

NO_MODELS = "no models: "
"""How the limitation begins that says why models that were asked for could not be trained."""


def why_no_models(evaluation: Evaluation) -> str | None:
    """Why none was trained although it was asked for; None where it was not asked for."""
    found = (t for t in evaluation.limitations if t.startswith(NO_MODELS))
    return next((short(text.removeprefix(NO_MODELS), 600) for text in found), None)


def models_sentence(evaluation: Evaluation) -> Sentence:
    """What models lose."""
    utility = evaluation.utility
    if utility is None or not utility.models:
        if reason := why_no_models(evaluation):
            return Sentence("plain", "not possible", f"No model was trained: {reason}.")
        return Sentence("plain", "not asked", "No model was trained, so its loss is not known.")
    parts, losses = [], []
    for model in utility.models:
        measure = next(m for m in MEASURES if m in model.real)
        real, made = model.real[measure].mean, model.synthetic[measure].mean
        chance = model.chance.get(measure)
        kept = kept_part(real, made, None if chance is None else chance.mean)
        text = f"{model.model} reaches {measure} {significant(made)} instead of {significant(real)}"
        if kept is not None:
            losses.append(1 - kept)
            text += f" ({share(max(kept, 0.0), 2)} of its gain over chance)"
        parts.append(text)
    text = f"Trained on synthetic rows to predict {quoted(utility.target)}, {'; '.join(parts)}."
    if utility.propensity.mean >= limit.TELLTALE:
        text += (
            " A classifier easily distinguishes synthetic rows from true ones (area under the "
            f"curve {significant(utility.propensity.mean)})."
        )
    if not losses:
        text += " There was nothing to learn from the true rows."
    return Sentence(*word_for("models", max(losses, default=None)), text)


def attack_sentence(membership: Membership | None, statement: Statement | None) -> Sentence:
    """What the attack with the most certain gain finds.

    The intervals hold together, so the largest lower end decides: another attack may have a larger
    estimate and tell less.

    Args:
        membership: the attacks; None if none was tried.
        statement: of the release behind the table, if known.
    """
    if membership is None or not membership.scores:
        reason = why_no_promise(statement)
        text = "No control table was given, so no attack was tried"
        text += f". {reason}." if reason else "; the promise holds without it."
        return Sentence("plain", "not tried", text)
    top = max(membership.scores, key=lambda score: score.lower)
    best = max(membership.scores, key=lambda score: score.advantage)
    bound = membership.bound
    which = "strongest attack" if top == best else "attack with the most certain gain"
    interval = f"between {decimals(top.lower)} and {decimals(top.upper)}"
    text = f"The {which} ({top.attack}) gains {decimals(top.advantage)}, {interval}"
    grade, word = word_for("attack", SimpleNamespace(lower=top.lower, bound=bound))
    if word == "alarm":
        text += f": more than the {significant(bound)} that the promise allows on average over"
        text += " releases. Do not release before that is explained."
        return Sentence(grade, word, text)
    if bound is not None:
        text += f"; the promise allows at most {significant(bound)} on average over releases"
    found = "It tells members from others better than chance"
    text += f". {'No attack can be distinguished from chance' if word == 'no gain' else found}."
    return Sentence(grade, word, text)


def why_no_promise(statement: Statement | None) -> str | None:
    """Why nothing can be said of a promise, as a sentence without its full stop; else None."""
    if statement is None:
        return "The promise behind the table is not known"
    if statement.insecure:
        return "Nothing is promised: the noise came from a seed, and can be predicted"
    if statement.drafted:
        return "The promise does not cover what the schema reveals, which was taken from the data"
    return None


# All of it together.

WORDS: dict[Grade, str] = {"good": "close", "plain": "no grade", "fair": "usable", "poor": "far"}
"""The first word of the verdict for each grade, the worst last."""
_HEADLINES: dict[Grade, str] = {
    "good": "Close to {} in all that was compared",
    "plain": "No overall grade: there is no scale for the marginals",
    "fair": "Usable with care: not all of {} is kept",
    "poor": "Far from {} in at least one way",
}


def overall_sentence(
    closeness: Sequence[tuple[str, Sentence]],
    attack: Sentence | None,
    truth: str = "the true table",
) -> Sentence:
    """A headline that is never better than the findings under it.

    Args:
        closeness: what each finding is about, and the finding.
        attack: what the attacks found; it counts where it is an alarm.
        truth: what the synthetic rows are compared with.
    """
    words = "; ".join(f"{what}: {finding.word}" for what, finding in closeness)
    if attack is not None and attack.grade == "poor":
        text = f"An attack gains more than the promise allows, whatever else holds ({words})."
        return Sentence("poor", attack.word, text)
    grade = max((finding.grade for _, finding in closeness), key=list(WORDS).index)
    return Sentence(grade, WORDS[grade], f"{_HEADLINES[grade].format(truth)} ({words}).")


@dataclass(frozen=True)
class Verdict:
    """What was found, in a sentence for each part.

    Attributes:
        overall: the worst of the findings in a word, or that rows look like copies.
        copied: whether they do.
        rows: None where hardly any row is impossible or has values that nobody has together.
        uses: what the table serves for and what not: each kind of use, and a grade.
        values: None where no column of numbers or dates has known values.
        group_means: None where no group means differ.
        queries: None where the workload asks for marginals.
        groups: None where none were asked for.
    """

    overall: Sentence
    copied: bool
    rows: Sentence | None
    uses: tuple[tuple[str, Grade], ...]
    values: Sentence | None
    group_means: Sentence | None
    marginals: Sentence
    queries: Sentence | None
    columns: Sentence
    associations: Sentence
    groups: Sentence | None
    models: Sentence
    attack: Sentence

    @property
    def sentences(self) -> list[Sentence]:
        """All of them: what cannot be comes first, then what the table serves for."""
        found = [self.overall, self.rows, uses_sentence(self.uses), self.values, self.group_means]
        found += [self.queries, self.marginals, self.columns, self.associations, self.groups]
        return [s for s in (*found, self.models, self.attack) if s is not None]

    @property
    def brief(self) -> list[str]:
        """A few sentences as plain text: the overall finding, impossible rows, what the table
        serves for, how far off what the workload asks for is, values and groups that were asked
        for or are off, and the worst of the rest where something is bad."""
        asked = self.queries or self.marginals
        others = [self.attack, self.columns, self.associations, self.models, self.marginals]
        bad = [s for g in ("poor", "fair") for s in others if s.grade == g and s is not asked]
        units = [s for s in (self.values, self.group_means) if s and s.grade != "good"]
        found = [self.overall, self.rows, uses_sentence(self.uses), asked, *units, self.groups]
        return [s.plain for s in (*found, *bad[:1]) if s is not None]


def verdict(found: Findings, statement: Statement | None) -> Verdict:
    """The verdict on a table.

    Args:
        found: what the numbers mean.
        statement: of the release behind the table, if known.
    """
    evaluation = found.evaluation
    rows, values = rows_sentence(evaluation), values_sentence(evaluation)
    means, by = group_means_sentence(evaluation), by_sentence(evaluation.by)
    queries, marginals = queries_sentence(evaluation), marginals_sentence(evaluation, found.scale)
    columns = columns_sentence(evaluation, found.columns)
    associations = dependence_sentence(found.associations)
    models = models_sentence(evaluation)
    attack = attack_sentence(evaluation.membership, statement)
    graded = queries if queries is not None and queries.grade != "plain" else None
    about = ("rows", "values", "group means", "queries", "marginals", "columns", "associations")
    parts = (rows, values, means, graded, marginals, columns, associations, by)
    closeness = [(k, s) for k, s in zip((*about, "groups"), parts) if s is not None]
    copies = copies_sentence(evaluation)
    pairs = associations.grade
    if pairs != "plain":  # a pair is never better than its columns
        pairs = worst_grade([columns, values, associations])
    workload = worst_grade([queries, marginals])
    if workload == "good" and _lost_inside(found):
        workload = "fair"
    uses: tuple[tuple[str, Grade], ...] = (
        ("single columns", worst_grade([columns, values])),
        ("pairs of columns", pairs),
        ("group means", worst_grade([means])),
        ("the workload", workload),
        ("models", models.grade),
        ("single rows", "good" if rows is None else rows.grade),
    )
    doubted = {"pairs of columns", "single rows"} if found.associations.blind else set()
    if is_blind(found.columns):
        doubted = {what for what, _ in uses}
    uses = tuple(  # what looks good may be chance
        (what, "plain" if grade == "good" and what in doubted else grade) for what, grade in uses
    )
    return Verdict(
        copies or overall_sentence(closeness, attack),
        copies is not None,
        rows,
        uses,
        values,
        means,
        marginals,
        queries,
        columns,
        associations,
        by,
        models,
        attack,
    )


def _lost_inside(found: Findings) -> bool:
    """Whether a clear association of two columns that the workload asks for is lost or made up."""
    asked = [set(error.attributes) for error in found.evaluation.workload.per_clique]
    changes = (*found.associations.lost, *found.associations.made_up)
    return any(each.issuperset(change.names) for change in changes for each in asked)


# What to do now.

MOST_STEPS = 4
"""Steps that are named at most."""


def next_sentence(found: Findings, judged: Verdict, unmeasured: Sequence[str]) -> Sentence:
    """What to do now.

    Args:
        found: what the numbers mean.
        judged: the verdict on it.
        unmeasured: columns of which no combination was measured.
    """
    evaluation, changes = found.evaluation, found.associations
    steps: list[str] = []

    def names_of(columns: Sequence[str], anchor: str) -> str:
        return named([quoted(name) for name in columns], anchor)

    if judged.copied:
        steps.append("find out why so many synthetic rows equal true ones, before anything else")
    if unmeasured:
        names = names_of(unmeasured, "unconnected")
        if (number := len(unmeasured)) > 1:
            names = f"any of {number:,} columns ({names})"
        advice = "give coarser bins or fewer values, or more budget"
        steps.append(f"no combination with {names} was measured: {advice}")
    if judged.marginals.grade == "poor":
        steps.append("coarser columns, a smaller workload or more budget would bring most")
    lost = [change.names for change in (*changes.lost, *changes.weak_lost)] + [*found.scale.gone]
    if changes.unconnected and not unmeasured:
        advice = "matters, give coarser codes, fewer columns, or a workload of little else"
        steps.append(f"where what depends on {names_of(changes.unconnected, 'cut-off')} {advice}")
    elif lost:
        advice = "matters, give coarser codes, or a workload of little else"
        steps.append(f"where {combination(lost[0])} {advice}")
    if broken := [rule.rule for rule in broken_rules(evaluation)]:
        steps.append(f"mend or warn of rows that break {names_of(broken, 'rules')}")
    if evaluation.utility is None and why_no_models(evaluation) is None:
        steps.append("name a target to learn what models lose")
    if evaluation.membership is None:
        steps.append("give a control table to try an attack")
    if not steps:
        fine = judged.overall.grade in ("good", "plain")
        steps.append(
            "use the table for what the workload covers; check other questions first"
            if fine
            else "use the table for nothing that the lines above name as lost or far off"
        )
    text = "; ".join(steps[:MOST_STEPS])
    return Sentence("plain", "next", text[0].upper() + text[1:] + ".")
