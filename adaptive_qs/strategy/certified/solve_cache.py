"""Solutions by problem, shared by the threads and subworkloads of one plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock

from adaptive_qs.strategy.solution import Solution


class SolveCache:
    """Every problem is solved once, also when several threads ask for it at the same time."""

    def __init__(self) -> None:
        self._solutions: dict[Hashable, Solution] = {}
        self._locks: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """Problems solved so far."""
        return len(self._solutions)

    def get(self, key: Hashable, solve: Callable[[], Solution]) -> Solution:
        """The solution of a problem, solved now if it is new.

        Args:
            key: everything that the solution depends on.
            solve: called at most once for each key, unless it raises.
        """
        with self._lock:
            own = self._locks.setdefault(key, Lock())
        with own:
            if key not in self._solutions:
                self._solutions[key] = solve()
            return self._solutions[key]
