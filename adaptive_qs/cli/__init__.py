"""The command line: parse, call, print; no mathematics."""

from __future__ import annotations

from adaptive_qs.cli.entry import main

__all__ = ["main"]
