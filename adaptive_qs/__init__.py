"""Differentially private synthetic tables and batch answers with error bars.

The public names stand in ``__init__.pyi`` and are imported when first used.
"""

from typing import Any

import lazy_loader

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from adaptive_qs.machine import find_version

        return find_version("adaptive-qs")
    return _public(name)
