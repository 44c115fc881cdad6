"""Array libraries, loaded when a column is first used: reading a schema does without them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["binning", "cells", "np", "pa", "pc", "spelled"]


class _Later:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from adaptive_qs.table import bins as binning
    from adaptive_qs.table import cells
    from adaptive_qs.table import profile as spelled
else:
    np, pa, pc = map(_Later, ("numpy", "pyarrow", "pyarrow.compute"))
    binning, cells, spelled = map(
        _Later, ("adaptive_qs.table.bins", "adaptive_qs.table.cells", "adaptive_qs.table.profile")
    )
