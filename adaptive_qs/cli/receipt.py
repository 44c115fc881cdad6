"""What the budget bought, for whoever reads why a command failed after it was spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adaptive_qs.errors import SpentNote


@dataclass
class Receipt:
    """The files that hold what was paid for; None until they are written.

    Attributes:
        kept: tells that a ledger holds it, while one does.
    """

    kept: Callable[[], SpentNote | None] = lambda: None
    release: Path | None = None
    table: Path | None = None

    def note(self) -> SpentNote:
        """That the budget is spent, and what there is to show for it."""
        durable = self.kept()
        if self.release is not None:
            kept = f"the release is in {self.release}: sample a table from it free of charge"
            kept += f"; {durable}" if durable else ""
        else:
            kept = durable or (
                "no release was kept (--release FILE keeps one before the table is fitted)"
            )
        if self.table is not None:
            kept = f"the table is in {self.table}; {kept}"
        return SpentNote(f"the budget is spent; {kept}")


@contextmanager
def paid(kept: Callable[[], SpentNote | None] = lambda: None) -> Iterator[Receipt]:
    """Add the receipt to whatever is raised in the block, to be filled in by the block.

    Args:
        kept: tells that a ledger holds what was paid for, while one does.
    """
    receipt = Receipt(kept)
    try:
        yield receipt
    except BaseException as error:
        error.add_note(receipt.note())
        raise


def spent(error: BaseException) -> str:
    """What an error says about the budget; nothing where none was spent."""
    notes = getattr(error, "__notes__", ())
    return "; ".join(note for note in notes if isinstance(note, SpentNote))
