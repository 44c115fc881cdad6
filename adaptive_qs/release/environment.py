"""The versions that decide whether the same release gives the same bytes again."""

from __future__ import annotations

import platform
import zlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "pyarrow", "jinja2", "markupsafe")
"""They round, compile, render or write what comes out."""


def package_version() -> str:
    """Version of the installed package."""
    return _version("adaptive-qs")


def versions() -> dict[str, str]:
    """Versions of this package, of Python and of libraries, and the kind of processor."""
    return {
        "adaptive-qs": package_version(),
        "python": platform.python_version(),
        **{name: _version(name) for name in LIBRARIES},
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "processor": platform.machine(),
    }


@cache
def _version(name: str) -> str:
    """As first read: its metadata is parsed anew at each look, and what is loaded stays."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "0+unknown"
