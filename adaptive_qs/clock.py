"""Where the time of a run goes."""

from __future__ import annotations

import time

from adaptive_qs.progress import PhaseProgress, StepProgress


class PhaseClock:
    """Seconds spent in each phase, and the phase passed on to whoever shows progress.

    A clock is itself a ``PhaseProgress``: a report from a new phase ends the one before.
    """

    def __init__(self, progress: PhaseProgress | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._phase: str | None = None
        self._since = self._begun = time.perf_counter()

    def start(self, phase: str) -> None:
        """End the phase before, if it is another one."""
        if phase != self._phase:
            self._close()
            self._phase = phase

    def steps(self, phase: str) -> StepProgress:
        """Start a phase; what is returned takes its reports."""
        self.start(phase)
        return lambda done, total: self(phase, done, total)

    def stop(self) -> dict[str, float]:
        """End the last phase; the seconds of every phase, and ``total``."""
        self._close()
        self._phase = None
        self.seconds["total"] = time.perf_counter() - self._begun
        return self.seconds

    def __call__(self, phase: str, done: int, total: int) -> None:
        """A report from a phase."""
        self.start(phase)
        if self._progress is not None:
            self._progress(phase, done, total)

    def _close(self) -> None:
        now = time.perf_counter()
        if self._phase is not None:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._since = now
