"""The command line: parse, call, print; no mathematics."""

from adaptive_qs.cli.entry import main

__all__ = ["main"]
