"""What the budget bought, for whoever reads why a command failed after it was spent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adaptive_qs.errors import SpentNote


@dataclass
class Receipt:
    """The files that hold what was paid for; None until they are written.

    Attributes:
        kept: that a ledger holds it, where there is one.
    """

    kept: SpentNote | None = None
    release: Path | None = None
    table: Path | None = None

    def note(self) -> SpentNote:
        """That the budget is spent, and what there is to show for it."""
        if self.release is not None:
            kept = f"the release is in {self.release}: sample a table from it free of charge"
            kept += f"; {self.kept}" if self.kept else ""
        else:
            kept = self.kept or (
                "no release was kept (--release FILE keeps one before the table is fitted)"
            )
        if self.table is not None:
            kept = f"the table is in {self.table}; {kept}"
        return SpentNote(f"the budget is spent; {kept}")


@contextmanager
def paid(kept: SpentNote | None = None) -> Iterator[Receipt]:
    """Add the receipt to whatever is raised in the block, to be filled in by the block.

    Args:
        kept: that a ledger holds what was paid for, where there is one.
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
