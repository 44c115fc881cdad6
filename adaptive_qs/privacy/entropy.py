"""Where random bits come from: the operating system, or a seed that forfeits privacy."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.arguments import natural_number

Words = NDArray[np.uint64]


class EntropySource(Protocol):
    """A stream of independent, uniform 64-bit words, each handed out once."""

    @property
    def insecure(self) -> bool:
        """Whether the stream can be predicted, so that nothing drawn from it is private."""
        ...

    def begin(self, release: int) -> None:
        """Say that words are now drawn for the release with this number in its run."""
        ...

    def words(self, count: int) -> Words:
        """The next ``count`` words."""
        ...


class SystemEntropy:
    """The operating system's cryptographic generator.

    It keeps no words between calls, so neither a fork, a copy nor a restored process image can
    hand a word out twice. Ask for words in blocks: one block costs one system call.
    """

    insecure = False

    def begin(self, release: int) -> None:
        """Nothing to do: words are never repeated."""

    def words(self, count: int) -> Words:
        """The next ``count`` words, from ``os.urandom``."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


class InsecureSeed:
    """A reproducible stream for tests: whoever knows the seed can subtract the noise.

    The stream (Philox 4x64, counter mode) depends on the seed alone, not on how it is cut into
    calls. Each release has a stream of its own, so that a run that is resumed draws what an
    undisturbed one would.

    Raises:
        InputError: the seed is not a non-negative integer.
    """

    insecure = True

    def __init__(self, seed: int) -> None:
        """The stream of ``seed``, from its start."""
        self._seed = natural_number("insecure seed", seed)
        self._generator = np.random.Philox(self._seed)

    def begin(self, release: int) -> None:
        """Go to the start of the release's own stream."""
        self._generator = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=(release,)))

    def words(self, count: int) -> Words:
        """The next ``count`` words of the seed's stream."""
        return self._generator.random_raw(count)
