"""How the steps of a run are reported, from the bottom layer to whoever shows them."""

from __future__ import annotations

from collections.abc import Callable

StepProgress = Callable[[int, int], None]
"""Called by one phase with the steps done and the steps in all."""

PhaseProgress = Callable[[str, int, int], None]
"""Called with the phase, the steps done and the steps in all."""
