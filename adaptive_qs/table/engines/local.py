"""Engines of one machine: codes in memory, or on disk where there is no room for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adaptive_qs.machine import StepProgress
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.engines import CountingEngine, EngineOptions
from adaptive_qs.table.engines.blocks import BlockEngine, HeldBlocks
from adaptive_qs.table.schema import Schema


@contextmanager
def open_memory(
    source: Any, schema: Schema, options: EngineOptions, progress: StepProgress | None
) -> Iterator[CountingEngine]:
    """Hold the codes of all rows in memory; see :class:`EngineOpener`."""
    table = read_table(source, schema, progress, options.check_held)
    yield BlockEngine(table.domain, HeldBlocks(table.columns), options.workers)


open_auto = open_memory
