"""A least-recently-used cache of arrays, bounded by their bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class ArrayCache:
    """Arrays by key; the least recently used go when there are too many bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        """Hold at most ``max_bytes`` (a single larger array is made and not held)."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._arrays: OrderedDict[Hashable, Array] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The array of a key, made where it is not held."""
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
                return self._arrays[key]
        array = make()
        with self._lock:
            if key not in self._arrays and array.nbytes <= self._max_bytes:
                self._arrays[key] = array
                self._bytes += array.nbytes
                while self._bytes > self._max_bytes:
                    self._bytes -= self._arrays.popitem(last=False)[1].nbytes
        return array
