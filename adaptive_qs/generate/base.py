"""Table generators by name: from released estimates to coded rows, at no cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from adaptive_qs.arguments import one_of
from adaptive_qs.domain import Clique
from adaptive_qs.generate.loglinear import Rows
from adaptive_qs.generate.rows import SynthesisSettings, synthesise_rows
from adaptive_qs.machine import PhaseProgress
from adaptive_qs.residual.model import ReferenceModel


class Generator(Protocol):
    """Makes a table from what was released; it never sees a private row."""

    def __call__(
        self,
        residuals: ReferenceModel,
        measured: Iterable[Clique],
        workload: Sequence[Clique],
        num_rows: int,
        seed: int,
        settings: SynthesisSettings | None = None,
        workers: int = 1,
        progress: PhaseProgress | None = None,
    ) -> Rows:
        """A table of codes.

        Args:
            residuals: the noisy estimates.
            measured: cliques that were measured.
            workload: cliques in which the table should be best.
            num_rows: rows wanted, at least 1.
            seed: the same seed and inputs give the same table, for any number of workers.
            settings: limits on time and memory.
            workers: threads.
            progress: called with each phase, its steps done and its steps in all.

        Returns:
            Shape (num_rows, attributes), int32.
        """


DEFAULT_GENERATOR = "loglinear"

GENERATORS: dict[str, Generator] = {DEFAULT_GENERATOR: synthesise_rows}
"""The generators by the name that a release's settings give."""


def generator_named(name: Any) -> Generator:
    """The generator of this name.

    Raises:
        InputError: there is none.
    """
    return GENERATORS[one_of("generator", name, GENERATORS)]
