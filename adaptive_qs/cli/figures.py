"""Tables of figures on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_qs.cli.output import emit_columns
from adaptive_qs.pages.numbers import share as part_in_words


def percent(share: float) -> str:
    """About three digits, such as "12.3 %", and "under 0.001 %" for less: never 0 for what is
    not."""
    return part_in_words(share).replace("\u00a0", " ")


def excess(part: float) -> str:
    """How far something is above something else, to two digits; a factor where it is far."""
    return f"{100 * part:.2g} %" if part < 10 else f"a factor of {1 + part:,.0f}"


def emit_figures(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with numbers aligned to the right; the first column holds names."""
    words = [k == 0 or not all(_is_number(row[k]) for row in rows) for k in range(len(names))]
    widths = [max(len(row[k]) for row in (names, *rows)) for k in range(len(names))]

    def aligned(row: Sequence[str]) -> list[str]:
        return [
            cell if word else cell.rjust(width) for cell, word, width in zip(row, words, widths)
        ]

    emit_columns(aligned(names), [aligned(row) for row in rows])


def _is_number(text: str) -> bool:
    return text.lstrip("+-")[:1].isdigit()
