"""Table generators by name: from released estimates to coded rows, at no cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from adaptive_qs.arguments import shown
from adaptive_qs.domain import Clique
from adaptive_qs.errors import InputError
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
    ) -> Iterator[Rows]:
        """A table of codes, in parts that are made as they are asked for.

        Args:
            residuals: the noisy estimates.
            measured: cliques that were measured.
            workload: cliques in which the table should be best.
            num_rows: rows wanted, at least 1.
            seed: the same seed and inputs give the same table, for any number of workers.
            settings: limits on time and memory.
            workers: threads.
            progress: called with each phase, its steps done and its steps in all.

        Yields:
            Rows, shape (some, attributes), int32; ``num_rows`` in all.
        """


DEFAULT_GENERATOR = "loglinear"

GENERATORS: dict[str, Generator] = {DEFAULT_GENERATOR: synthesise_rows}
"""The generators by the name that a release's settings give."""


def generator_named(name: Any) -> Generator:
    """The generator of this name.

    Raises:
        InputError: there is none.
    """
    if not (isinstance(name, str) and name in GENERATORS):
        raise InputError(f"generator is {shown(name)}: give one of {', '.join(GENERATORS)}")
    return GENERATORS[name]
