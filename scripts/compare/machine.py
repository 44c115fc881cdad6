"""What cells run on, in words that name no machine."""

from __future__ import annotations

import os
from typing import Any

from scripts.compare.schedule import cores
from scripts.results import cpu_model


def machine(jobs: int, threads: int) -> dict[str, Any]:
    """Processor, cores, memory, and how cells share them."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu_model(),
        "cores": len(cores()),
        "memory_gb": round(memory / 2**30, 1),
        "cells_at_once": jobs,
        "threads_per_cell": threads,
    }
