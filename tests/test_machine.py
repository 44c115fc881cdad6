"""Ceilings that a caller gives in words, and those of the machine."""

import pytest

from adaptive_qs.errors import InputError
from adaptive_qs.machine import memory_bytes, plan_workers


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
