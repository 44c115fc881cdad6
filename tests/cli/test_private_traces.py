"""The search for private traces finds what it is made for."""

import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .private_traces import CANARY, CANARY_NUMBER, JOBS, Secrets, declared, write_private_table


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    path = tmp_path_factory.mktemp("private") / "t.csv"
    write_private_table(path)
    return Secrets(path, declared())


def leaks():
    """Each form of each secret, where a leak would put it."""
    a, marginal = JOBS["a"], np.array([JOBS[job] for job in ("a", "b", "c", CANARY, "?")])
    yield from (
        CANARY,
        f"x{CANARY_NUMBER}",
        f"is {a}.",
        f"{a:,} rows",
        f'{{"n":{a}}}',
        f"[1,{a}.0]",
    )
    for kind in ("<i8", "<f8", "<u4"):
        yield b"x" + marginal.astype(kind).tobytes() + b"y"
    yield (5 * marginal - marginal.sum()).tobytes()
    yield np.array([1.0, sum(JOBS.values())]).tobytes()
    packed = io.BytesIO()
    pq.write_table(pa.table({"x": ["a", CANARY] * 99}), packed)
    yield packed.getvalue()
    packed = io.BytesIO()
    pq.write_table(pa.table({"x": np.r_[np.zeros(99), a]}), packed)
    yield packed.getvalue()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.txt", f"{CANARY} " * 99)
    yield packed.getvalue()


def test_the_search_finds_leaks_and_nothing_else(secrets):
    a = JOBS["a"]
    for leak in leaks():
        with pytest.raises(AssertionError):
            secrets.absent("leak", leak)
    for harmless in (f"{a}.5", f"1{a}", f"0.{a}", f"ab{a}", f"{a}0", "no secrets"):
        secrets.absent("text", harmless)
