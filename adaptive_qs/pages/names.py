"""Names of columns and values, which may hold anything, in a line that people can read."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 64
"""Characters of a name that charts and tables show; the list of columns has it whole."""

_JOINT = re.compile(r"(?<=_)(?=[^\W_])|(?<=\w[/.])(?=[^\W\d])")


def joints(text: str) -> list[str]:
    """The parts of a text between which a line may break, after the joints of a name: "_"."""
    return _JOINT.split(text)


def short(name: str, longest: int = LONGEST) -> str:
    """A name on one line, cut with "…" where it is longer.

    Characters that are not printed, such as those that turn the direction of the text, are
    written as escapes.
    """
    shown = str(name)
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def quoted(name: str) -> str:
    """A name inside a sentence."""
    return f"“{short(name)}”"


def combination(names: Sequence[str]) -> str:
    """Several columns together: "age × income"."""
    return " × ".join(short(name) for name in names)


def first_of(items: Sequence[str], most: int) -> str:
    """All items, or the first few and how many more: "a, b, c" or "a, b and 3 more"."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def listed(items: Sequence[str], most: int = 5) -> str:
    """The first few, and how many more: "a, b and 3 more"."""
    shown = list(items[:most])
    if len(items) > most:
        shown.append(f"{len(items) - most:,} more")
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
