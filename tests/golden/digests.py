"""Golden digests: what seeded runs let out, in two strengths.

``exact`` digests hold every bit. They are compared on a machine like the one that wrote them, by
processor and versions of the libraries (:func:`recipe`): other processors add in another order.
``rounded`` digests hold integers, texts and structure exactly, numbers to ``DIGITS`` digits of the
largest one in their array, and of synthetic rows only how many there are and their columns, since
a row can change with the last digit of a number. They tell how large a change is when digests are
rewritten. On another machine a last digit can decide an integer of a strategy or a learnt bin, so
there only the members of a release are compared.

python -m tests.golden.digests [RUN...]    rewrites digests.json, and names the members that changed
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from adaptive_qs.machine import linear_algebra

from .runs import RUNS, Members

FILE = Path(__file__).with_name("digests.json")
DIGITS = 6
ROWS = ("sample", "plain", "where", "homes", "persons", "trips")
"""Members that are synthetic rows."""
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow", "pandas")

Digests = dict[str, dict[str, str]]
"""Digest by strength, by member."""


def recipe() -> dict[str, str]:
    """Return what decides the last bits: processor, interpreter and libraries."""
    features = np._core._multiarray_umath.__cpu_features__
    found = ",".join(sorted(name for name, has in features.items() if has))
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": hashlib.sha256(found.encode()).hexdigest()[:16],
        "compiled for": get_host_cpu_name(),
        "algebra": ",".join(
            sorted({p["architecture"] for p in threadpool_info() if p.get("architecture")})
        ),
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: version(name) for name in LIBRARIES},
    }


def run_and_digest(name: str) -> Digests:
    """Run it, and return the digests of its members."""
    with linear_algebra().limit(limits=1):  # with several threads it adds in another order
        return _digests(RUNS[name].members())


def _digests(members: Members) -> Digests:
    return {
        name: {
            "exact": _digest(_exact(member)),
            "rounded": _digest(_shape(member) if name in ROWS else _rounded(member)),
        }
        for name, member in members.items()
    }


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, allow_nan=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _exact(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    return value


def _shape(rows: Any) -> Any:
    return list(rows.shape) if isinstance(rows, np.ndarray) else [len(rows), rows[0]]


def _rounded(value: Any) -> Any:
    """Return the value with all numbers that are no integers rounded."""
    if isinstance(value, np.ndarray):
        return _rounded_array(value)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if isinstance(value, str) and (ratio := _ratio(value)) is not None:
        value = ratio
    return float(f"{value:.{DIGITS - 1}e}") if isinstance(value, float) else value


def _rounded_array(values: NDArray[Any]) -> Any:
    if values.dtype.kind != "f":
        return [str(values.dtype), values.tolist()]
    largest = np.nanmax(np.abs(values), initial=0.0, where=np.isfinite(values))
    places = DIGITS - 1 - math.floor(math.log10(largest)) if largest else 0
    return (np.round(values, places) + 0.0).tolist()  # zeros have no sign


def _ratio(text: str) -> float | None:
    """Return the number that a text such as "3/4" states; a variance is a number of the loop."""
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]) / int(parts[1])


def read() -> dict[str, Any]:
    """Return the file: the recipe of its exact digests, and the digests of each run."""
    return json.loads(FILE.read_text()) if FILE.exists() else {"recipe": {}, "runs": {}}


def changes(before: Digests, after: Digests, strength: str) -> list[str]:
    """Return the members that differ, or that only one of the two has."""
    every = sorted({*before, *after})
    return [n for n in every if before.get(n, {}).get(strength) != after.get(n, {}).get(strength)]


def rewrite(names: list[str]) -> None:
    """Write the digests of these runs, of all where none is named, and print what changed."""
    kept = read()
    if names and kept["recipe"] != recipe():
        sys.exit("this machine is not like the one that wrote digests.json: rewrite all runs")
    runs = kept["runs"] if names else {}
    for name in names or RUNS:
        before, after = kept["runs"].get(name, {}), run_and_digest(name)
        runs[name] = after
        if changed := changes(before, after, "exact"):
            beyond = set(changes(before, after, "rounded"))
            print(
                f"{name}:", ", ".join(n if n in beyond else f"{n} (last digits)" for n in changed)
            )
    ordered = {name: runs[name] for name in RUNS if name in runs}
    FILE.write_text(json.dumps({"recipe": recipe(), "runs": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    rewrite(sys.argv[1:])
