"""Ceilings that a caller gives in words, and those of the machine."""

import subprocess
import sys

import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.machine import memory_bytes, peak_memory_mb, plan_workers


@pytest.mark.parametrize(
    ("text", "size"),
    [("3GB", 3 * 2**30), ("1.5 gib", 3 * 2**29), ("10", 10), (7, 7), ("2k", 2048), ("1TB", 2**40)],
)
def test_memory_sizes(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1PB", "1e9", "1..2GB", -5, True, 1.5, "0.1"])
def test_bad_memory_sizes(text):
    with pytest.raises(InputError, match="max-memory"):
        memory_bytes(text)


def test_defaults_come_from_the_machine():
    assert memory_bytes(None) > 2**20
    assert plan_workers(None) >= 1


def test_the_peak_of_a_program_is_not_that_of_the_one_that_started_it():
    held = bytearray(b"x") * (300 * 2**20)
    command = "from adaptive_qs.machine import peak_memory_mb; print(peak_memory_mb())"
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True)
    assert 5 < float(ended.stdout) < 250 < peak_memory_mb() > len(held) / 2**20
