"""The verdict: a few sentences made from the numbers by the rules in ``thresholds``."""

from __future__ import annotations

from dataclasses import dataclass

from adaptive_qs.evaluation.verdict.attack import attack_sentence
from adaptive_qs.evaluation.verdict.closeness import marginals_sentence
from adaptive_qs.evaluation.verdict.columns import columns_sentence
from adaptive_qs.evaluation.verdict.copies import copies_sentence
from adaptive_qs.evaluation.verdict.dependence import dependence_sentence
from adaptive_qs.evaluation.verdict.findings import Findings
from adaptive_qs.evaluation.verdict.models import models_sentence
from adaptive_qs.evaluation.verdict.overall import overall_sentence
from adaptive_qs.evaluation.verdict.queries import queries_sentence
from adaptive_qs.evaluation.verdict.sentence import Sentence
from adaptive_qs.evaluation.verdict.unseen import unseen_sentence
from adaptive_qs.release.statement import Statement


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
