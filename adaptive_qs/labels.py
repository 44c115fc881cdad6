"""How one cell of an attribute is named in public: a value, or a bin with its two ends."""

from __future__ import annotations


class BinLabel(str):
    """The name of a cell that holds several values, such as "20..29".

    Attributes:
        first: the smallest value.
        last: the largest value, or the bound below which all values lie.
        open: whether ``last`` itself is outside.
    """

    first: str
    last: str
    open: bool

    def __new__(cls, name: str, first: str, last: str, open: bool = False) -> BinLabel:  # noqa: A002
        """A text with the ends of the bin."""
        label = super().__new__(cls, name)
        label.first, label.last, label.open = first, last, open
        return label


def up_to(name: str, label: str) -> str:
    """A comparison that holds for a cell and all before it, such as "age <= 29"."""
    if isinstance(label, BinLabel):
        return f"{name} {'<' if label.open else '<='} {label.last}"
    return f"{name} <= {label}"


def from_to(name: str, first: str, last: str) -> str:
    """An interval from one cell to another, such as "age in [20, 39]" or "[1.5, 2)"."""
    start = first.first if isinstance(first, BinLabel) else first
    if isinstance(last, BinLabel):
        return f"{name} in [{start}, {last.last}{')' if last.open else ']'}"
    return f"{name} in [{start}, {last}]"


def around(name: str, first: str, last: str) -> str:
    """An arc over the end of a circle of cells, such as "hour from 22 to 3, around the end"."""
    start = first.first if isinstance(first, BinLabel) else first
    if isinstance(last, BinLabel):
        to = f"{'to below' if last.open else 'to'} {last.last}"
    else:
        to = f"to {last}"
    return f"{name} from {start} {to}, around the end"
