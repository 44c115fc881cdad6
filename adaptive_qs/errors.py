"""Errors a user can cause, each carrying the exit code that the command line returns for it.

A message is one line that says what came, where, and what to do; it never contains a cell
value, a count, or anything else that depends on the private rows.
"""

from __future__ import annotations


class SpentNote(str):
    """A note on any error (`add_note`): what had been paid for by then. Safe to print."""

    __slots__ = ()


class AdaptiveQsError(Exception):
    """Base of every error that is not a bug of this package."""

    exit_code = 1


class InputError(AdaptiveQsError, ValueError):
    """A parameter, file or option that the caller must change."""

    exit_code = 2


class SchemaError(InputError):
    """The public description of the columns is wrong or does not fit the request."""


class DataError(InputError):
    """The private table does not fit the declared schema."""


class WorkloadError(InputError):
    """The workload is empty, malformed or names unknown attributes."""


class LedgerError(InputError):
    """The ledger cannot be used: missing, damaged, of a newer version, or not of this run."""


class GuardRailWarning(UserWarning):
    """A budget that promises or buys less than its owner may have meant; see the message."""


class BudgetExceeded(AdaptiveQsError):
    """A charge would exceed the privacy budget; nothing was drawn."""

    exit_code = 3


class ResourceExceeded(AdaptiveQsError):
    """The planned memory exceeds the ceiling; no budget was spent."""

    exit_code = 4


def reason(error: OSError, otherwise: str = "unknown reason") -> str:
    """What the system says of a failure, for the middle of a line."""
    return (error.strerror or otherwise).lower()


def of_another_version(found: int, reads: int) -> str:
    """What is wrong with a file in another format than the one that is read, and what to do."""
    if found > reads:
        return (
            f"made by a newer version (format {found}, this one reads up to {reads}): upgrade "
            "adaptive-qs"
        )
    return f"made by an earlier version (format {found}, this one reads {reads}): use that version"
