"""What was paid for: every charge in exactly one fact, whatever its label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adaptive_qs.data.schema import Schema
from adaptive_qs.privacy.events import Event, GaussianEvent, PartitionEvent, SelectionEvent
from adaptive_qs.privacy.labels import SEPARATOR, Purpose, measurement_label, read_label
from adaptive_qs.release.declared import learnt_text
from adaptive_qs.release.fact import Fact

_MECHANISMS = {
    GaussianEvent: "exact discrete Gaussian",
    SelectionEvent: "exponential mechanism",
    PartitionEvent: "partition selection by exact discrete Gaussian",
}
_SINGLE = "single"


def paid_facts(events: Iterable[Event], schema: Schema) -> list[Fact]:
    """The facts that these charges paid for, in the order in which they were first charged.

    Their exact costs add up to the cost of all events. A charge whose label says nothing known is
    a fact of its own, under that label.

    Args:
        events: every charge.
        schema: as released.
    """
    single = _single_labels(schema.names)
    groups: dict[tuple[Purpose, str], list[Event]] = {}
    for event in events:
        groups.setdefault(_group(event.label, single, schema.names), []).append(event)
    return [_fact(*group, charged, single, schema) for group, charged in groups.items()]


def learnt_columns(events: Iterable[Event], names: Sequence[str]) -> tuple[str, ...]:
    """The columns whose bins or categories these charges paid for."""
    readings = [read_label(event.label) for event in events]
    paid = {r.subject for r in readings if r.purpose in (Purpose.BINS, Purpose.VALUES)}
    return tuple(name for name in names if name in paid)


def mechanisms_of(events: Iterable[Event]) -> tuple[str, ...]:
    """The kinds of randomness behind these charges, each once."""
    return tuple(dict.fromkeys(_MECHANISMS[type(event)] for event in events))


def _single_labels(names: Sequence[str]) -> dict[str, str]:
    """Labels of the residuals of one column, with their column.

    Columns whose name may as well be that of a combination are left out.
    """
    known = [name for name in names if SEPARATOR not in name]
    return {measurement_label(Purpose.RESIDUAL, (name,)): name for name in known}


def _group(label: str, single: dict[str, str], names: Sequence[str]) -> tuple[Purpose, str]:
    """The fact that a charge belongs to: its purpose, and what tells it from others of it."""
    purpose, subject = read_label(label)
    match purpose:
        case Purpose.RESIDUAL:
            return purpose, _SINGLE if label in single else ""
        case Purpose.STRATEGY | Purpose.QUERIES:
            return Purpose.QUERIES, ""
        case Purpose.BINS | Purpose.VALUES if subject in names:
            return Purpose.VALUES, subject
        case Purpose.ROWS | Purpose.SELECTION:
            return purpose, ""
    return Purpose.OTHER, label


def _fact(
    purpose: Purpose, subject: str, charged: list[Event], single: dict[str, str], schema: Schema
) -> Fact:
    count = f"{len(charged):,}"
    match purpose:
        case Purpose.ROWS:
            return Fact.paid("rows", "the number of rows, with noise", charged)
        case Purpose.VALUES:
            return Fact.paid("values", learnt_text(schema.column(subject)), charged, [subject])
        case Purpose.SELECTION:
            text = f"which marginals are measured: {count} noisy choices"
            return Fact.paid("selections", text, charged)
        case Purpose.RESIDUAL if subject == _SINGLE:
            columns = dict.fromkeys(single[event.label] for event in charged)
            text = f"how often each of their codes occurs, with noise: {count} measurements"
            return Fact.paid("single columns", text, charged, tuple(columns))
        case Purpose.RESIDUAL:
            text = f"how often codes of several columns occur together, with noise: {count} "
            return Fact.paid("combinations", text + "residuals of marginals", charged)
        case Purpose.QUERIES:
            text = f"{count} noisy measurements, from which all answers follow"
            return Fact.paid("answers", text, charged)
    return Fact.paid("other", f'what was charged as "{subject}"', charged)
