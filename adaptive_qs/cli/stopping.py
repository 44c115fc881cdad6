"""A signal that asks the command to stop, even where the exception it raised got lost.

Python drops exceptions that reach it inside some callbacks of compiled code. So a request is also
remembered, and raised again at the next report of progress.
"""

from __future__ import annotations

_requests: list[int] = []


class Stopped(BaseException):
    """A signal asked the command to stop."""

    def __init__(self, number: int) -> None:
        """Remember the number of the signal."""
        self.exit_code = 128 + number


def request(number: int) -> None:
    """Remember the signal and raise.

    Raises:
        Stopped: always.
    """
    _requests.append(number)
    raise Stopped(number)


def check() -> None:
    """Raise again what was asked for.

    Raises:
        Stopped: a signal came since :func:`forget`.
    """
    if _requests:
        raise Stopped(_requests[0])


def forget() -> None:
    """Begin a new command."""
    _requests.clear()
