"""The verdict: a few sentences made from the numbers by the rules in ``scale``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.evaluation import scale as limit
from adaptive_qs.evaluation.evaluation import Evaluation
from adaptive_qs.evaluation.marginals import OrderedError
from adaptive_qs.evaluation.queries import PartError, QueryError
from adaptive_qs.evaluation.results import Measure, Membership, kept_part
from adaptive_qs.evaluation.scale import (
    LEAST_ROOM,
    STEP_ERROR,
    Associations,
    Fate,
    Grade,
    WorkloadScale,
    associations,
    chance_l1,
    fresh_sample_l1,
    like_independent,
    sparse_share,
    workload_scale,
)
from adaptive_qs.evaluation.tables import TablePair
from adaptive_qs.machine import StepProgress
from adaptive_qs.pages.words import (
    combination,
    counted,
    decimals,
    listed,
    quoted,
    share,
    short,
    signed,
    significant,
)
from adaptive_qs.release.statement import Statement

# The error of every single column.


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
    for i, (true, made) in enumerate(zip(*pair.margins)):
        shares = true / rows[0], made / rows[1]
        variation = float(np.abs(shares[0] - shares[1]).sum() / 2)
        fresh = fresh_sample_l1(true, rows[1]) / 2
        doubt = STEP_ERROR * fresh + chance_l1(*rows, sparse_share(true)) / 2
        name = pair.domain.names[i]
        found.append(ColumnPair(i + 1, name, true.size, variation, fresh, doubt, shares))
    return sorted(found, key=lambda column: (-column.variation, column.number))


# What the verdict is made from, computed once for all who show it.


@dataclass(frozen=True, eq=False)
class Findings:
    """An evaluation and what its numbers mean; owner only.

    Attributes:
        evaluation: of the tables.
        scale: of the workload's marginals.
        columns: every single column, the largest error first.
        fates: of the associations.
    """

    evaluation: Evaluation
    scale: WorkloadScale
    columns: tuple[ColumnPair, ...]
    fates: Associations


def findings(
    evaluation: Evaluation, workers: int = 1, progress: StepProgress | None = None
) -> Findings:
    """What an evaluation's numbers mean; no model is trained for it.

    Args:
        evaluation: of the tables.
        workers: threads; they change no result.
        progress: called with the marginals done and in all.
    """
    return Findings(
        evaluation,
        workload_scale(evaluation, workers, progress),
        tuple(column_pairs(evaluation.pair)),
        associations(evaluation),
    )


# One finding of the verdict.

NAMED, FEW_NAMED = 3, 2
"""Most names in a list, and in one of several of a sentence; the rest are counted, and listed
further down."""


@dataclass(frozen=True)
class Sentence:
    """One finding.

    Attributes:
        grade: for its colour.
        word: the grade in a word.
        text: the finding.
        links: phrases of the text, and the id in the report of what they lead to.
        brief: the finding in a line; the text where it is short enough.
    """

    grade: Grade
    word: str
    text: str
    links: tuple[tuple[str, str], ...] = ()
    brief: str = ""

    @property
    def plain(self) -> str:
        """The finding in a line, for a terminal: no links, and spaces like any other."""
        return (self.brief or self.text).replace("\u00a0", " ")

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in parts, each with the id that it leads to; "" where it leads nowhere."""
        rest, found = self.text, []
        for phrase, anchor in reversed(self.links):
            before, phrase, after = rest.rpartition(phrase)
            found += [(after, ""), (phrase, anchor)]
            rest = before
        return [piece for piece in [(rest, ""), *reversed(found)] if piece[0]]


def named(
    names: Sequence[str], anchor: str, most: int = NAMED
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The first names and how many more, and the link from that to the list of all."""
    more = len(names) - most
    links = ((f"{more:,} more", anchor),) if more > 0 else ()
    return listed(names, most), links


def are(number: int) -> str:
    """The verb for so many things."""
    return "is" if number == 1 else "are"


# What the attacks find, against the bound.


def attack_sentence(membership: Membership | None, statement: Statement | None) -> Sentence:
    """What the attack finds that is surest of its gain.

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
    which = "strongest attack" if top == best else "attack that is surest of its gain"
    interval = f"between {decimals(top.lower)} and {decimals(top.upper)}"
    text = f"The {which} ({top.attack}) gains {decimals(top.advantage)}, {interval}"
    bound = membership.bound
    if bound is not None and top.lower > bound:
        text += f": more than the {significant(bound)} that the promise allows on average over"
        text += " releases. Do not release before that is explained."
        return Sentence("poor", "alarm", text)
    if bound is not None:
        text += f"; the promise allows at most {significant(bound)} on average over releases"
    if top.lower > 0:
        text += ". It tells members from others better than chance."
        return Sentence("fair", "some gain", text)
    return Sentence("good", "no gain", text + ". No attack is told from chance.")


def why_no_promise(statement: Statement | None) -> str | None:
    """Why nothing can be said of a promise, as a sentence without its full stop; else None."""
    if statement is None:
        return "The promise behind the table is not known"
    if statement.insecure:
        return "Nothing is promised: the noise came from a seed, and can be predicted"
    if statement.drafted:
        return "The promise does not cover what the schema tells, which was taken from the data"
    return None


# How close the marginals of both tables are.

GRADES: tuple[tuple[Grade, str], ...] = (("good", "close"), ("fair", "usable"), ("poor", "far"))


def marginals_sentence(evaluation: Evaluation, scale: WorkloadScale) -> Sentence:
    """How close the workload's marginals are, on which scale."""
    found = evaluation.workload
    number = counted(len(found.per_clique), "marginal")
    marginals = f"The workload's {number}"
    if evaluation.queries is not None:
        marginals = f"The {number} of the workload's columns"
    marginals += " differs" if len(found.per_clique) == 1 else " differ"
    measured = (
        f"{marginals} by {significant(found.mean_l1)} on average (L1: 0 is equal, 2 has "
        f"nothing in common): {share(found.mean_l1 / 2)} of the rows would have to move to "
        "another cell."
    )
    if not scale.per_clique:
        return Sentence("plain", "no scale", f"{measured} They are too large for a comparison.")
    of_them = "" if scale.all else f" {len(scale.per_clique):,} of them, with mean error "
    of_them += "" if scale.all else f"{significant(scale.l1)}, give the scale."
    grade, placed = _placed(
        scale, f"sample of {counted(evaluation.pair.synthetic.num_rows, 'row')}"
    )
    gone, links = _gone(scale)
    if gone:
        placed += f" {gone}"
        grade = GRADES[1] if grade[0] == "good" else grade
    brief = f"{marginals} by {significant(found.mean_l1)} on average."
    return Sentence(
        *grade,
        f"{measured}{of_them} A fresh {placed}",
        links,
        brief=f"{brief}{of_them} A fresh {placed}",
    )


def _gone(scale: WorkloadScale) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Which marginals are as far off as independent columns would be; "" where none is."""
    gone = scale.gone
    if not gone or len(scale.per_clique) == 1:
        return "", ()
    names, links = named([combination(attributes) for attributes in gone], "errors", FEW_NAMED)
    number = f"{counted(len(gone), 'marginal')} {are(len(gone))}"
    return f"{number} as far off as independent columns: {names}.", links


def _placed(scale: WorkloadScale, sample: str) -> tuple[tuple[Grade, str], str]:
    """The grade of marginals that were compared, and where they stand on the scale."""
    text = f"{sample} would differ by about {significant(scale.fresh)}"
    if not scale.known:
        text += (
            f". {share(scale.sparse, 2)} of the true rows lie in cells with fewer than {limit.FEW} "
            "of them: chance decides most of such an error, so no grade is given. Fewer columns at "
            "once, coarser bins or more rows would tell more."
        )
        return ("plain", "no scale"), text
    position = scale.position
    if scale.joint:
        text += f", independent columns by {significant(scale.independent)}"
    if scale.worse:
        return GRADES[2], f"{text}: the table is no closer than independent columns."
    if position is None:
        if scale.l1 <= scale.fresh:
            text += f": the table is {way_of(0)}."
        else:
            text += "; the two are too close for a scale between them." if scale.joint else "."
        room, good, fair = 1.0, limit.CLOSE_ALONE, limit.USABLE_ALONE
    else:
        room = scale.independent - scale.fresh
        text += f": the table is {way_of(position)}."
        good, fair = limit.CLOSE, limit.USABLE
    beyond, doubt = (scale.l1 - scale.fresh) / room, scale.doubt / room
    if position is not None:
        text += raised_limit(beyond, doubt)
    elif good < beyond <= doubt:
        text += (
            f" Chance may explain as much: the limit of close is {significant(doubt)} above a "
            f"fresh sample here, instead of {good}."
        )
    return GRADES[0 if beyond <= max(good, doubt) else 1 if beyond <= fair else 2], text


def raised_limit(beyond: float, doubt: float) -> str:
    """Which limit was used, where what is called close is so because of chance.

    Args:
        beyond: how far from a fresh sample (0) to independent columns (1).
        doubt: how far chance may take a fresh sample.
    """
    if not limit.CLOSE < beyond <= doubt:
        return ""
    return (
        f" Chance may explain as much: the limit of close is {share(doubt, 2)} of the way here, "
        f"instead of {share(limit.CLOSE, 2)}."
    )


def way_of(position: float) -> str:
    """A position between a fresh sample (0) and independent columns (1), in words."""
    if position <= 0:
        return "as close as a fresh sample"
    if position >= 1:
        return "no closer than independent columns"
    return f"{share(position, 2)} of the way from the one to the other"


# Which single columns are off.


def lost_columns(columns: Sequence[ColumnPair]) -> list[ColumnPair]:
    """Single columns that are far off, the worst first."""
    return [c for c in columns if c.variation - c.fresh >= max(limit.LOST_COLUMN, c.doubt)]


def moved_means(evaluation: Evaluation) -> list[OrderedError]:
    """Ordered columns whose mean moved far, the furthest first."""
    rows = evaluation.pair.true.num_rows, evaluation.pair.synthetic.num_rows
    least = max(limit.LARGE_SHIFT, 3 * math.sqrt(sum(1 / max(n, 1) for n in rows)))
    moved = [o for o in evaluation.ordered if abs(o.mean_shift) >= least]
    return sorted(moved, key=lambda o: -abs(o.mean_shift))


def columns_sentence(evaluation: Evaluation, columns: Sequence[ColumnPair]) -> Sentence:
    """Which single columns are off, and by what that is told.

    Args:
        evaluation: of the tables.
        columns: of both, the largest error first.
    """
    off, moved = lost_columns(columns), moved_means(evaluation)
    links: tuple[tuple[str, str], ...] = ()
    parts = []
    if off:
        names, links = named(
            [
                f"{quoted(c.name)} ({share(c.variation, 2)}, a fresh sample {share(c.fresh, 2)})"
                for c in off
            ],
            "all-columns",
        )
        parts.append(
            f"Single columns with at least {share(limit.LOST_COLUMN, 1)} of the rows more in "
            f"another cell than a fresh sample: {names}."
        )
        largest = columns[0]
        if largest not in off:
            parts.append(
                f"The largest error is that of {quoted(largest.name)}, "
                f"{share(largest.variation, 2)}, but it would be {share(largest.fresh, 2)} in a "
                "fresh sample."
            )
    else:
        parts.append("No single column is far off.")
    if moved:
        names, more = named(
            [f"{quoted(o.attribute)} ({signed(o.mean_shift, 1)})" for o in moved], "ordered"
        )
        links += more
        parts.append(f"Means that moved, in standard deviations: {names}.")
    text = " ".join(parts)
    if off:
        return Sentence("poor", "some off", text, links)
    if moved:
        return Sentence("fair", "moved means", text, links)
    return Sentence("good", "kept", text)


# Whether synthetic rows look like copies of true ones.


def copies_sentence(evaluation: Evaluation) -> Sentence | None:
    """A warning where rows are the same, or more of them match than chance explains; else None.

    That few rows match is no measure of privacy, and nothing is said then.
    """
    rows = evaluation.rows
    if rows.same:
        text = (
            "All synthetic rows are true rows, each as often as in the true table: this is the "
            "true table itself, as far as the schema tells. Nothing below speaks of a synthetic "
            "table; check which files were given."
        )
        return Sentence("poor", "the same rows", text)
    expected = max(rows.expected_if_independent, rows.expected_if_redrawn)
    if rows.unique_matches < limit.COPY_FACTOR * expected + limit.COPIED:
        return None
    text = (
        f"{share(rows.unique_matches)} of the synthetic rows equal a true row that occurs once; "
        f"independent columns would match {share(rows.expected_if_independent)} of all rows, one "
        f"half of the true table matches {share(rows.expected_if_redrawn)} of the other. Rows may "
        "have been copied: find out how the table was made. (Few matches would prove no privacy.)"
    )
    return Sentence("poor", "copies", text)


# Which associations of two columns are lost.

Links = tuple[tuple[str, str], ...]
Part = tuple[str, Links]


def dependence_sentence(found: Associations) -> Sentence:
    """What became of the associations: clear ones, columns that lost all of theirs, weak ones."""
    parts = [_clear(found), _alone(found), _weak(found), _made_up(found)]
    text = " ".join(text for text, _ in parts if text)
    links = tuple(link for _, links in parts for link in links)
    if len(found.lost) > limit.MOST_LOST * found.clear:
        return Sentence("poor", "losses", text, links)
    if found.lost or found.alone or len(found.weak_lost) > limit.WEAK_LOST * found.weak:
        return Sentence("fair", "some lost", text, links)
    many = limit.WEAK_LOST * (found.clear + found.weak)
    if found.made_up or len(found.weak_made_up) > many:
        return Sentence("fair", "some new", text, links)
    return Sentence("good", "kept", text, links)


def _clear(found: Associations) -> Part:
    if not found.clear:
        return "No two columns of the true table depend clearly on each other.", ()
    start = (
        f"Of {counted(found.clear, 'clear association')} between two columns, {found.kept:,} kept "
        f"{'its' if found.kept == 1 else 'their'} strength, {found.weaker:,} became weaker, "
        f"{found.stronger:,} stronger"
    )
    if not found.lost:
        return f"{start} and none is lost.", ()
    names, links = named([combination(f.names) for f in found.lost], "lost")
    return f"{start} and {len(found.lost):,} {are(len(found.lost))} lost: {names}.", links


def _alone(found: Associations) -> Part:
    if not found.alone:
        return "", ()
    names, links = named([quoted(name) for name in found.alone], "cut-off")
    verb = "comes" if len(found.alone) == 1 else "come"
    return f"{names} {verb} out independent of all other columns.", links


def _weak(found: Associations) -> Part:
    number = len(found.weak_lost)
    if not number:
        return "", ()
    names, links = named(_sized(found.weak_lost), "weak-lost", FEW_NAMED)
    start = f"Of {counted(found.weak, 'weak association')}, {number:,} {are(number)} lost"
    return f"{start}: {names}.", links


def _made_up(found: Associations) -> Part:
    """Such relations come from noise, or from marginals that do not say it all."""
    names, links = named([combination(f.names) for f in found.made_up], "made-up")
    new = [names] if names else []
    number = len(found.weak_made_up)
    if number:
        largest = _sized(found.weak_made_up[:1])[0]
        phrase = counted(number, "weak association")
        links += ((phrase, "weak-made-up"),)
        new.append(f"{phrase}, {'the largest ' if number > 1 else ''}{largest}")
    if not new:
        return "", ()
    reason = " Such relations arise where two columns were not measured together." if number else ""
    return f"Only in the synthetic table: {', and '.join(new)}.{reason}", links


def _sized(fates: Sequence[Fate]) -> list[str]:
    """The columns with Cramér's V in the true table, and in the synthetic one."""
    return [
        f"{combination(f.names)} (V {decimals(f.true)}, now {decimals(f.synthetic)})" for f in fates
    ]


# What models lose that are trained on synthetic rows.

MEASURES: tuple[Measure, ...] = ("AUROC", "macro F1", "balanced accuracy")
"""The first of them that was computed speaks for a model."""
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
        reason = why_no_models(evaluation)
        if reason is not None:
            return Sentence("plain", "not possible", f"No model was trained: {reason}.")
        return Sentence("plain", "not asked", "No model was trained, so its loss is not known.")
    parts, losses = [], []
    for model in utility.models:
        measure = next((m for m in MEASURES if m in model.real), None)
        if measure is None:
            continue
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
            " A classifier tells synthetic rows from true ones with ease (area under the curve "
            f"{significant(utility.propensity.mean)})."
        )
    if not losses:
        return Sentence("plain", "no gain", text + " Nothing was to be learnt from the true rows.")
    worst = max(losses)
    if worst <= limit.SMALL_LOSS:
        return Sentence("good", "small loss", text)
    if worst <= limit.LARGE_LOSS:
        return Sentence("fair", "some loss", text)
    return Sentence("poor", "large loss", text)


# The first word of the verdict: the worst of what was found.

WORDS: dict[Grade, str] = {"good": "close", "fair": "usable", "poor": "far", "plain": "no grade"}
"""The word for each grade."""
_ORDER: tuple[Grade, ...] = ("good", "plain", "fair", "poor")
_TEXTS: dict[Grade, str] = {
    "good": "Close to the true table in all that was compared",
    "fair": "Usable with care: not all of the true table is kept",
    "poor": "Far from the true table in at least one way",
    "plain": "No overall grade: there is no scale for the marginals",
}


def overall_sentence(closeness: Sequence[tuple[str, Sentence]], attack: Sentence) -> Sentence:
    """A headline that is never kinder than the findings under it.

    Args:
        closeness: what each finding is about, and the finding.
        attack: what the attacks found; it counts where it is an alarm.
    """
    told = "; ".join(f"{what}: {finding.word}" for what, finding in closeness)
    if attack.grade == "poor":
        text = f"An attack gains more than the promise allows, whatever else holds ({told})."
        return Sentence("poor", attack.word, text)
    grade = max((finding.grade for _, finding in closeness), key=_ORDER.index)
    return Sentence(grade, WORDS[grade], f"{_TEXTS[grade]} ({told}).")


# How far the workload's own queries are off.


def queries_sentence(evaluation: Evaluation) -> Sentence | None:
    """Their root mean squared error beside that of a fresh sample and of independent columns.

    What is no closer than independent columns is far where these are clearly further off than a
    fresh sample, and usable at best where they hardly are. There is no grade where all queries are
    of single columns, for which independence says nothing.
    None where the workload asks for marginals.
    """
    asked = evaluation.queries
    if asked is None:
        return None
    rows = evaluation.pair.true.num_rows
    number = counted(asked.queries, "query", "queries")
    text = (
        f"The workload's {number} {are(asked.queries)} off by "
        f"{share(asked.rmse)} of the rows ({significant(asked.rmse * rows)} of {rows:,}; root mean "
        f"square{', weighted' if asked.weighted else ''}), a fresh sample by about "
        f"{share(asked.fresh)}"
    )
    if asked.joint:
        text += f", independent columns by {share(asked.independent)}"
    links: tuple[tuple[str, str], ...] = ((number, "queries"),)
    grade, placed = _placed_queries(asked)
    text += placed
    gone = [part for part in asked.parts if is_gone(part)]
    if gone:
        names, more = named([part.title for part in gone], "queries")
        text += f" As far off as independent columns: {names}."
        links += more
        grade = max(grade, GRADES[1], key=GRADES.index)
    if not asked.joint:
        return Sentence("plain", "queries", text, links)
    return Sentence(*grade, text, links)


def is_gone(part: PartError) -> bool:
    """Whether queries are as far off as those of independent columns, and a fresh sample is not."""
    doubt = max(LEAST_ROOM * part.fresh, part.chance(limit.DEVIATIONS))
    return part.ways > 1 and like_independent(part.rmse, part.fresh, part.independent, doubt)


def _placed_queries(asked: QueryError) -> tuple[tuple[Grade, str], str]:
    """The grade of the queries together, and the end of the sentence."""
    room, excess = asked.independent - asked.fresh, asked.rmse - asked.fresh
    chance, least = asked.chance(limit.DEVIATIONS), LEAST_ROOM * asked.fresh
    deviations = limit.DOUBTFUL if room > STEP_ERROR * asked.fresh else limit.DEVIATIONS
    if asked.joint and excess >= room and excess > max(asked.chance(deviations), least):
        return GRADES[2 if min(excess - chance, room - least) > 0 else 1], (
            f": the table is {way_of(1)}."
        )
    if room <= max(least, 2 * chance):
        if excess <= 0:
            return GRADES[0], f": the table is {way_of(0)}."
        between = "; the two are too close for a scale between them." if asked.joint else "."
        return GRADES[0], between
    doubt, beyond = chance / room, excess / room
    text = f": the table is {way_of(beyond)}.{raised_limit(beyond, doubt)}"
    good = max(limit.CLOSE, doubt)
    return GRADES[0 if beyond <= good else 1 if beyond <= limit.USABLE else 2], text


# Whether rows have pairs of values that true rows never have.


def unseen_sentence(evaluation: Evaluation) -> Sentence | None:
    """Rows with unseen pairs, where they are many more than new true rows would have; else None.

    Chance moves the difference of two shares of n and m rows by √(p(1 − p)(1/n + 1/m)).
    """
    found = evaluation.unseen
    if found is None:
        return None
    rows = evaluation.pair.true.num_rows, evaluation.pair.synthetic.num_rows
    p = (found.share + found.expected_if_redrawn) / 2
    deviation = math.sqrt(p * (1 - p) * sum(1 / n for n in rows))
    beyond = found.share - found.expected_if_redrawn
    if beyond < max(limit.UNSEEN, limit.DEVIATIONS * deviation):
        return None
    names, links = named([combination(pair.attributes) for pair in found.worst], "unseen")
    text = (
        f"{share(found.share)} of the synthetic rows have two values that no true row has "
        f"together, about {share(found.expected_if_redrawn)} of new true rows would: {names}."
    )
    return Sentence("fair", "unseen pairs", text, links)


# The verdict: a few sentences made from the numbers by the rules in ``thresholds``.


@dataclass(frozen=True)
class Verdict:
    """What was found, in sentences.

    Attributes:
        overall: the worst of the findings in a word, or that rows look like copies.
        copied: whether they do.
        marginals: how close they are.
        queries: how far the workload's queries are off; None where it asks for marginals.
        columns: which single columns are off.
        associations: which are lost.
        unseen: pairs of values that the true table never has; None where they are few.
        models: what they lose.
        attack: what it gains.
    """

    overall: Sentence
    copied: bool
    marginals: Sentence
    queries: Sentence | None
    columns: Sentence
    associations: Sentence
    unseen: Sentence | None
    models: Sentence
    attack: Sentence

    @property
    def sentences(self) -> list[Sentence]:
        """All of them."""
        found = [self.overall, self.marginals, self.queries, self.columns, self.associations]
        return [s for s in (*found, self.unseen, self.models, self.attack) if s is not None]

    @property
    def brief(self) -> list[str]:
        """One to three sentences as plain text: the overall finding, how far off what the workload
        asks for is, and the worst of the rest where something is bad."""
        asked = self.queries or self.marginals
        others = [self.attack, self.columns, self.associations, self.models, self.marginals]
        others += [] if self.unseen is None else [self.unseen]
        bad = [s for g in ("poor", "fair") for s in others if s.grade == g and s is not asked]
        return [s.plain for s in (self.overall, asked, *bad[:1])]


def verdict(found: Findings, statement: Statement | None) -> Verdict:
    """The verdict on a table.

    Args:
        found: what the numbers mean.
        statement: of the release behind the table, if known.
    """
    evaluation = found.evaluation
    marginals = marginals_sentence(evaluation, found.scale)
    singles = columns_sentence(evaluation, found.columns)
    dependence = dependence_sentence(found.fates)
    attack = attack_sentence(evaluation.membership, statement)
    copies = copies_sentence(evaluation)
    queries, unseen = queries_sentence(evaluation), unseen_sentence(evaluation)
    closeness = [("marginals", marginals), ("columns", singles), ("associations", dependence)]
    if queries is not None and queries.grade != "plain":
        closeness.insert(0, ("queries", queries))
    if unseen is not None:
        closeness.append(("rows", unseen))
    return Verdict(
        copies or overall_sentence(closeness, attack),
        copies is not None,
        marginals,
        queries,
        singles,
        dependence,
        unseen,
        models_sentence(evaluation),
        attack,
    )


# What to do now.

MOST_STEPS = 4
"""Steps that are named at most."""


def next_sentence(found: Findings, judged: Verdict, alone: Sequence[str]) -> Sentence:
    """What to do now.

    Args:
        found: what the numbers mean.
        judged: the verdict on it.
        alone: columns of which no combination was measured.
    """
    evaluation = found.evaluation
    steps = []
    links: tuple[tuple[str, str], ...] = ()
    if judged.copied:
        steps.append("find out why so many synthetic rows equal true ones, before anything else")
    if alone:
        names, links = named([quoted(name) for name in alone], "unconnected")
        together = "" if len(alone) == 1 else f"any of {len(alone):,} columns ("
        steps.append(
            f"no combination with {together}{names}{')' if together else ''} was measured: give "
            "coarser bins or fewer values, or more budget"
        )
    if judged.marginals.grade == "poor":
        steps.append("coarser columns, a smaller workload or more budget would bring most")
    if found.fates.alone and not alone:
        names, more = named([quoted(name) for name in found.fates.alone], "cut-off")
        steps.append(
            f"where what depends on {names} matters, give coarser codes, fewer columns, or a "
            "workload of little else"
        )
        links += more
    elif gone := _lost_most(found):
        steps.append(
            f"where {combination(gone)} matters, give coarser codes, or a workload of little else"
        )
    broken = broken_rules(evaluation)
    if broken:
        names, more = named([quoted(rule) for rule in broken], "rules")
        steps.append(f"mend or warn of rows that break {names}")
        links += more
    if evaluation.utility is None and why_no_models(evaluation) is None:
        steps.append("name a target to learn what models lose")
    if evaluation.membership is None:
        steps.append("give a control table to try an attack")
    if not steps and judged.overall.grade in ("good", "plain"):
        steps.append("use the table for what the workload names; check other questions first")
    elif not steps:
        steps.append("use the table for nothing that the lines above name as lost or far off")
    text = "; ".join(steps[:MOST_STEPS])
    links = tuple(link for link in links if link[0] in text)
    return Sentence("plain", "next", text[0].upper() + text[1:] + ".", links)


def _lost_most(found: Findings) -> tuple[str, ...]:
    """The columns of the association or marginal whose loss is worst; empty where none is lost."""
    lost = [*found.fates.lost, *found.fates.weak_lost]
    marginals = [*(fate.names for fate in lost[:1]), *found.scale.gone]
    return marginals[0] if marginals else ()


def broken_rules(evaluation: Evaluation) -> list[str]:
    """Rules that synthetic rows break clearly more often than true ones, the most broken first."""
    broken = [r for r in evaluation.rules if r.broken_synthetic - r.broken_true >= limit.BROKEN]
    return [r.rule for r in sorted(broken, key=lambda r: -r.broken_synthetic)]
