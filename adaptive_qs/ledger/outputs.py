"""Noisy answers as bytes, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from adaptive_qs.privacy.budget import Output

COUNTS, CHOICE, VALUES = "counts", "choice", "values"


def to_bytes(output: Output) -> tuple[str, bytes]:
    """The kind of an output and its bytes."""
    if isinstance(output, tuple):
        return VALUES, json.dumps(output).encode()
    if isinstance(output, int):
        return CHOICE, output.to_bytes(8, "little")  # of one size, whatever was chosen
    return COUNTS, np.ascontiguousarray(output, dtype="<i8").tobytes()


def from_bytes(kind: str, data: bytes) -> Output:
    """The output of these bytes; counts come back as a vector.

    Raises:
        ValueError: they are none of this kind.
    """
    if kind == COUNTS:
        return np.frombuffer(data, dtype="<i8").astype(np.int64)
    if kind == CHOICE:
        if len(data) != 8:
            raise ValueError("not a choice")
        return int.from_bytes(data, "little")
    values = json.loads(data)
    if kind != VALUES or not isinstance(values, list):
        raise ValueError("unknown kind of output")
    return tuple(map(str, values))


def digest_of(kind: str, data: bytes) -> str:
    """SHA-256 of an output, as the entry of its release states it."""
    return hashlib.sha256(kind.encode() + b"\0" + data).hexdigest()


def digests_of(stored: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    """The same of several."""
    return tuple(digest_of(kind, data) for kind, data in stored)
