"""Everything that a reader of a release learns of the private table, fact by fact."""

from __future__ import annotations

from collections.abc import Iterable

from adaptive_qs.data.schema import Schema
from adaptive_qs.privacy.events import Event
from adaptive_qs.release.declared import declared_facts
from adaptive_qs.release.fact import Basis, Fact, Kind
from adaptive_qs.release.paid import learnt_columns, paid_facts

_PUBLIC: tuple[tuple[Kind, str], ...] = (
    ("refusals", "that the table has rows at all: without any there would be no release"),
    (
        "refusals",
        "that its rows fit the memory set aside for them, which depends on the machine or the "
        "ceiling asked for: with more of them there would be no release",
    ),
    (
        "settings",
        "the workload, the budget and every setting, among them limits taken from the memory of "
        "the machine",
    ),
)
_KEPT_BACK: tuple[str, ...] = (
    "the order of the rows, and which of them are alike",
    "any exact count",
    "where in its bin a value lies: values are drawn evenly inside",
    "how cells were written, and what is in columns that are not used",
    "the name, place, format and size of the private file",
)
TABLES = (
    "the model, and every table sampled from it with whatever number of rows and seed",
    "how the rounds went: what each measured, how far estimates moved, and when it was over",
)
ANSWERS = ("every answer with its standard error and interval",)


def facts_of(events: Iterable[Event], schema: Schema, derived: Iterable[str]) -> tuple[Fact, ...]:
    """Every fact in a release with these charges.

    What was paid is in exactly one fact, so that the exact costs of all facts add up to the cost
    of all events.

    Args:
        events: every charge.
        schema: as released.
        derived: what was computed from released values: ``TABLES`` or ``ANSWERS``.
    """
    charged = tuple(events)
    return (
        *declared_facts(schema, learnt_columns(charged, schema.names)),
        *(_free(kind, fact, "declared public") for kind, fact in _PUBLIC),
        *paid_facts(charged, schema),
        *(_free("derived", fact, "post-processing") for fact in derived),
        *(_free("kept back", fact, "not revealed") for fact in _KEPT_BACK),
    )


def _free(kind: Kind, fact: str, basis: Basis) -> Fact:
    return Fact(kind=kind, fact=fact, basis=basis)
