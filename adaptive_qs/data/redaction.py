"""Errors from libraries that read private cells, replaced by ones that quote none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adaptive_qs.errors import AdaptiveQsError, DataError

T = TypeVar("T")


def redacted(action: Callable[[], T], explain: Callable[[Exception], DataError]) -> T:
    """The result of `action`, or the error that `explain` makes of whatever it raised.

    Arrow and pandas quote cells in their messages. The new error is raised after the old one has
    been dropped, so that not even its `__context__` leads back to a cell. `explain` must not
    copy the message. Errors of this package pass unchanged.
    """
    try:
        return action()
    except AdaptiveQsError:
        raise
    except Exception as error:  # noqa: BLE001  (nothing that may quote a cell gets through)
        refusal = explain(error)
    raise refusal
