"""The review of a proposed schema: open questions, and what their answers change."""

import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from adaptive_qs.arguments import split_names
from adaptive_qs.errors import InputError, SchemaError
from adaptive_qs.pages.words import join_first
from adaptive_qs.table.columns.base import Topic
from adaptive_qs.table.profile import PERSONS
from adaptive_qs.table.propose import EQUAL_LIMITS
from adaptive_qs.table.schema import Schema, open_topics
from adaptive_qs.table.spellings import split_name, swapped

QUESTIONS: dict[Topic, str] = {
    "publish": "May every column be published? Name those that must come back empty.",
    "person": "Can a person have several rows? Name the column of persons: all rows of a person are"
    " then protected, not one, and it does not come back. None: -",
    "missing": "Do these cells mean a missing value? Name the columns where they are values.",
    "values": "May these lists of values be known? Name the columns to learn with noise instead.",
    "limits": "May these limits and the bins inside be known? Name public limits: age=0..120."
    " Cells beyond them count as the nearest limit.",
    "order": "Do these values have an order? Name the columns without one.",
    "format": "Is the day before the month? Name the columns where the month comes first.",
    "rule": "Must each rule hold for every possible row? Give the numbers of those that need not.",
}
"""The questions by their topics, in the order of the review."""
MOST_VALUES = 100
"""Largest number of values to learn with noise, whatever number there is in the rows."""
MOST_LINES = 12
"""Largest number of lines that show the table of a rule."""


def list_questions(schema: Schema) -> list[tuple[Topic, list[str], str]]:
    """Return the open questions: topic, lines about what it concerns, and the proposed answer."""
    topics, found = open_topics(schema), []
    for topic in (topic for topic in QUESTIONS if topic in topics):
        names = topics[topic]
        if topic == "publish":
            lines = [f"{column.name}: {column.shown}" for column in schema.generated]
        elif topic == "rule":
            tables = {rule.rule: _group_pairs(rule.table) for rule in schema.declared_rules}
            lines = [line for number, rule in enumerate(names, start=1)
                     for line in (f"{number} {rule}", *tables[rule])]  # fmt: skip
        elif topic == "missing":
            lines = [f"{n}: {', '.join(filter(None, schema.column(n).missing))}" for n in names]
        elif topic == "person":
            lines = [f"{n}: {'; '.join(schema.written[n].why)}" for n in names]
        else:
            lines = [f"{n}: {schema.column(n).summary}{_marked(schema, n, topic)}" for n in names]
        person = re.compile(f"({PERSONS})s?")
        likely = [n for n in names if any(map(person.fullmatch, split_name(n)))]
        found.append((topic, lines, (likely or ["-"])[0] if topic == "person" else ""))
    return found


def _group_pairs(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines with the values that determine each value of a rule's table."""
    groups: dict[str, list[str]] = {}
    for *first, last in table:
        groups.setdefault(last, []).append(" ".join(first))
    lines = [f"    {join_first(first, 4)} -> {last}" for last, first in groups.items()]
    more = [f"    and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return lines[:MOST_LINES] + more


def _marked(schema: Schema, name: str, topic: Topic) -> str:
    if topic != "limits":
        return ""
    parts = " and ".join(schema.parts.get(name, ()))
    equal = EQUAL_LIMITS in schema.column(name).why
    return (f", with {parts}" if parts else "") + (" (occur in the rows)" if equal else "")


def answer(schema: Schema, topic: Topic, text: str) -> Schema:
    """Return the schema with the answer to an open question, which each of its columns records.

    An empty text accepts the proposal. Raise InputError if the text names no column or rule of the
    question, or cannot be followed.
    """
    if topic not in (topics := open_topics(schema)):
        return schema  # an answer has removed what it was about
    concerned = topics[topic]
    named = [part for part in split_names(text) if part]
    content = json.loads(schema.to_json(reasons=True))
    known = [*schema.written] if topic in ("publish", "person") else concerned
    if topic == "rule":
        known = [str(number) for number, _ in enumerate(concerned, start=1)]
    names = [part.rpartition("=")[0].rstrip(" `") or part if topic == "limits" else part
             for part in named]  # fmt: skip
    for name in names:
        if name in schema.by_name and (of := schema.column(name).part_of):
            raise InputError(f"{name!r} is the {of[1]} of {of[0]!r}. Name {of[0]!r}.")
        if name not in known and name != "-":
            raise InputError(
                f"{name!r} is none of {join_first(known, 10)}. Type the answer again, with "
                "backticks around names that have commas."
            )
    if len(names) > (1 if topic == "person" or "-" in names else len(set(names))):
        raise InputError(f"{text!r} has too many names. Type each once, one person, or only -.")
    dropped = {concerned[int(number) - 1] for number in named} if topic == "rule" else set()
    rules = [r for r in content.get("rules", ()) if not (type(r) is dict and r["rule"] in dropped)]
    if "rules" in content:
        content["rules"] = rules
    for each in (*content["columns"], *content.get("generated", ()), *rules, content):
        if type(each) is not dict or topic not in each.get("open", ()):
            continue
        each["open"] = [other for other in each["open"] if other != topic]
        own = [part for name, part in zip(names, named) if name == each.get("name")]
        said = ", ".join(own) or ("as proposed" if topic != "publish" else text or "yes")
        each["why"] = [*each.get("why", ()), f"answer on {topic}: {said}"]
    for name, part in zip(names, named):
        if part != "-" and topic != "rule":
            _change(schema, content, topic, name, part)
    with contextlib.suppress(SchemaError):
        return Schema.parse(content)
    raise InputError(f"{text!r} does not fit the columns. Type another answer.")


def _change(schema: Schema, content: dict[str, Any], topic: Topic, name: str, part: str) -> None:
    """Change the content of a schema by one part of an answer, which is about a column.

    Args:
        schema: before the answer.
        content: of the schema, changed in place.
        topic: of the question.
        name: of the column.
        part: of the answer: the name, or limits such as ``age=0..120``.
    """
    place = [*schema.written].index(name)
    lists = [content["columns"], content.get("generated", [])]
    column = next(each for columns in lists for each in columns if each["name"] == name)
    if topic in ("publish", "person", "values"):  # no rule can name the column any more
        used = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        content["rules"] = [r for r in content.get("rules", ()) if not used.search(str(r))]
    if topic in ("publish", "person"):
        for columns in lists:
            columns[:] = [c for c in columns if name not in (c["name"], c.get("of"))]
        if topic == "person":
            content["person"] = name
            return
        made = {"name": name, "type": "filled", "place": place, "why": ["the owner left it out"]}
        content["generated"] = sorted([*lists[1], made], key=lambda each: each["place"])
    elif topic == "order":
        column["ordered"] = False
    elif topic == "format":
        column["format"] = swapped(column["format"])
    elif topic == "missing":
        _count_marker(column)
    elif topic == "values":
        for key in ("values", "ordered", "groups"):
            column.pop(key, None)
        column |= {"private_values": MOST_VALUES, "catch_all": "other"}
    else:
        try:
            low, high = re.fullmatch(r".*=(.+?)\.\.(.+)", part).groups()  # type: ignore[union-attr]
            _limit(column, low.strip(), high.strip())
        except (AttributeError, ValueError):
            raise InputError(
                f"{part!r} has no limits. Type them as {name}=0..100, dates as "
                f"{name}=2020-01-31..2021-12-31."
            ) from None


def _count_marker(column: dict[str, Any]) -> None:
    """Make the missing markers of a column values."""
    markers = [marker for marker in column.get("missing", ()) if marker]
    column["missing"] = [marker for marker in column["missing"] if not marker]
    if "values" in column:
        kind = type(column["values"][0])
        column["values"] = [*column["values"], *map(kind, markers)]
        return
    if not all(re.fullmatch(r"-?[0-9]+", marker) for marker in markers) or "min" not in column:
        raise InputError(f"{column['name']!r} has cells that can only be missing.")
    starts = set(column.get("bin_starts") or range(column["min"], column["max"] + 1))
    for value in map(int, markers):
        starts |= {column["max"] + 1, value} if column["max"] < value else {value}
        starts |= {value + 1} if value < column["min"] else set()
        column |= {"min": min(value, column["min"]), "max": max(value, column["max"])}
    column["bin_starts"] = sorted(starts)


def _limit(column: dict[str, Any], low: str, high: str) -> None:
    """Give a column of numbers or moments other limits, and move values outside to them."""
    if "edges" in column:
        first, last = float(low), float(high)
        inner = [edge for edge in column["edges"] if first < edge < last]
        column |= {"edges": [first, *inner, last]}
    elif type(column["min"]) is int:
        first, last = int(low), int(high)
        if "bin_starts" in column:
            column["bin_starts"] = [first, *(s for s in column["bin_starts"] if first < s <= last)]
        column |= {"min": first, "max": last}
    else:
        day = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
        if column["type"] == "datetime":  # a day is all of its times
            low += "T00:00:00" if re.fullmatch(day, low) else ""
            high += "T23:59:59" if re.fullmatch(day, high) else ""
        if not all(re.match(day, end) for end in (low, high)):
            raise ValueError
        column |= {"min": low, "max": high}
    column["outside"] = "clip"


def describe_open(schema: Schema) -> Sequence[tuple[str, str]]:
    """Return each open question, by its topic, with what it is about."""
    topics = open_topics(schema)
    return [
        (topic, ": ".join(filter(None, (join_first(topics[topic], 6), QUESTIONS[topic]))))
        for topic in QUESTIONS
        if topic in topics
    ]
