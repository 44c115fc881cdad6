"""What one run released: noisy measurements, how they were paid for, and tables from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptive_qs.release.release import Release as Release

__all__ = ["Release"]


def __getattr__(name: str) -> Any:
    if name == "Release":  # imported when first used: it needs the compiled layers
        from adaptive_qs.release.release import Release

        return Release
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
