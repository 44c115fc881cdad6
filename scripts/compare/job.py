"""The job file that a cell's process is given, in the same form for our mechanisms and peers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Clique, Domain
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.workload.workload import Workload


@dataclass(frozen=True)
class Job:
    """What a process is to do, and where it writes.

    Attributes:
        codes: an .npy file of integer codes, shape (rows, attributes).
        domain: number of codes by attribute, in the order of the columns.
        workload: the marginals that matter, by attribute names.
        epsilon, delta: the budget; None for a floor.
        seed: of all randomness.
        threads: that it may use.
        out: where it writes the synthetic table, an .npy file like ``codes``.
        report: where it writes a JSON report: versions, settings, seconds by phase (of the
            processor for this project, of the clock for peers), notes.
        answers: where a mechanism that answers writes its marginals one after the other (rows,
            float64, in the order of the workload, last attribute fastest); peers do not.
        mechanism: its name.
        settings: what departs from its recommended settings.
    """

    codes: str
    domain: dict[str, int]
    workload: list[list[str]]
    epsilon: float | None
    delta: float | None
    seed: int
    threads: int
    out: str
    report: str
    answers: str
    mechanism: str
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The job of a file that :meth:`save` wrote."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def save(self, path: Path) -> None:
        """Write the job file."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def table(self) -> CodedTable:
        """The private table."""
        return read_codes(Path(self.codes), Domain.from_sizes(self.domain))

    def marginals(self) -> Workload:
        """The workload, every marginal of weight 1."""
        domain = Domain.from_sizes(self.domain)
        return Workload(domain, {domain.clique(names): 1.0 for names in self.workload})


def write_codes(path: Path, table: CodedTable) -> None:
    """A table as an .npy file of int32 codes, shape (rows, attributes)."""
    np.save(path, np.stack([codes.astype(np.int32) for codes in table.columns], axis=1))


def read_codes(path: Path, domain: Domain) -> CodedTable:
    """The table in such a file, whatever its type of integers.

    Raises:
        DataError: codes outside the domain, or another number of attributes.
        ValueError, OSError: no such file, or not an array of two axes.
    """
    codes = np.load(path, allow_pickle=False)
    if codes.ndim != 2:
        raise ValueError(f"codes have shape {codes.shape}: give (rows, attributes)")
    return CodedTable.from_codes(domain, codes.T)


def read_answers(path: Path, workload: Workload) -> Iterator[tuple[Clique, NDArray[np.float64]]]:
    """The marginals in a file of answers, one at a time (rows).

    Raises:
        ValueError: the file has another length.
    """
    flat = np.memmap(path, dtype=np.float64, mode="r")
    shapes = [workload.domain.shape(clique) for clique in workload.cliques]
    if flat.size != sum(workload.domain.size(clique) for clique in workload.cliques):
        raise ValueError("the answers are not one number for each cell of the workload")
    start = 0
    for clique, shape in zip(workload.cliques, shapes):
        size = workload.domain.size(clique)
        yield clique, np.array(flat[start : start + size]).reshape(shape)
        start += size
