"""Release bundles with damaged bytes."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
from hypothesis import strategies as st

from adaptive_qs.errors import InputError
from adaptive_qs.release.release import Release
from adaptive_qs.synthesizer import Synthesizer

from .tables import GOOD, SCHEMA, edited


@cache
def release_bytes() -> bytes:
    """A small release, as the bytes of its file."""
    frame = pa.table({name: cells[:1] * 20 for name, cells in GOOD.items()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.zip"
        fitted = Synthesizer(epsilon=1.0, workload=1, insecure_seed=1).fit(frame, schema=SCHEMA)
        fitted.release_.save(path)
        return path.read_bytes()


def damaged_releases() -> st.SearchStrategy[bytes]:
    """The release after a few edits of its bytes."""
    return st.deferred(lambda: edited(release_bytes()))


def check_release(content: bytes) -> None:
    """Damage is refused, or was to bytes that mean nothing: the release is the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.zip"
        path.write_bytes(content)
        try:
            loaded = Release.load(path)
        except InputError:
            return
        again = Path(folder) / "again.zip"
        loaded.save(again)
        assert again.read_bytes() == release_bytes()
