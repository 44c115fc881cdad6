"""Fuzz for as long as there is time: `python -m tests.fuzz.long SECONDS SEED`."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from hypothesis import HealthCheck, settings

from .properties import PROPERTIES

EXAMPLES = 100
"""Of one property before the next has its turn."""


def run(seconds: float, seed: int, failures: list[str] | None = None) -> dict[str, int]:
    """All properties in turn, each time with a fresh seed drawn from ``seed``.

    Args:
        seconds: when to stop; the turn under way is finished.
        seed: of the seeds.
        failures: gets one text for each failure: the property, its seed and the shrunk example.
            Examples are generated, so they hold nothing private.

    Returns:
        Examples checked by property, and under "failures" the number of failures.
    """
    config = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    seeds = np.random.default_rng(seed)
    found = [] if failures is None else failures
    checked = dict.fromkeys(PROPERTIES, 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, tested in PROPERTIES.items():
            number = int(seeds.integers(2**62))
            try:
                checked[name] += tested.run(config, number)
            except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
                found.append(_told(name, number, error))
                checked[name] += 1
    return {**checked, "failures": len(found)}


def _told(name: str, number: int, error: Exception) -> str:
    notes = "\n".join(getattr(error, "__notes__", []))
    return f"{name}, seed {number}: {type(error).__name__}: {error}\n{notes}"


if __name__ == "__main__":
    told: list[str] = []
    print(json.dumps(run(float(sys.argv[1]), int(sys.argv[2]), told), indent=2))
    print("\n\n".join(told), file=sys.stderr)
    sys.exit(bool(told))
