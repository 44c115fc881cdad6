"""Errors that a user can cause, each with the exit code of the command line.

A message is one line: what is wrong, where, and what to do. It contains no cell value, no count,
and nothing else that depends on private rows.
"""


class SpentNote(str):
    """A note on an error (`add_note`) about the budget that was spent; safe to print."""

    __slots__ = ()


class AdaptiveQsError(Exception):
    """The base of all errors that are not bugs of this package."""

    exit_code = 1


class InputError(AdaptiveQsError, ValueError):
    """An invalid parameter, file or option."""

    exit_code = 2


class SchemaError(InputError):
    """A schema that is invalid or does not fit the request."""


class DataError(InputError):
    """A private table that does not fit its schema."""


class WorkloadError(InputError):
    """A workload that is empty, malformed or names unknown attributes."""


class LedgerError(InputError):
    """A ledger that is missing, damaged, of a newer version, or not of this run."""


class GuardRailWarning(UserWarning):
    """A warning about a budget that promises or buys little."""


class BudgetExceeded(AdaptiveQsError):
    """A charge that exceeds the privacy budget; nothing was drawn."""

    exit_code = 3


class ResourceExceeded(AdaptiveQsError):
    """A plan that exceeds the maximum memory; no budget was spent."""

    exit_code = 4


def reason(error: OSError, otherwise: str = "unknown reason") -> str:
    """Return the reason that the system gives for an error, for the middle of a line."""
    return (error.strerror or otherwise).lower()


def of_another_version(found: int, reads: int) -> str:
    """Return what is wrong with a file of another format version, and what to do."""
    if found > reads:
        return (
            f"made by a newer version (format {found}, this one reads up to {reads}): upgrade "
            "adaptive-qs"
        )
    return f"made by an earlier version (format {found}, this one reads {reads}): use that version"
