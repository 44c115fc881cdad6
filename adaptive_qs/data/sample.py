"""The sample data shipped with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adaptive_qs.errors import InputError

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class SampleDataset:
    """Where a sample table and its public schema lie on disk."""

    data: Path
    """A CSV file, compressed by gzip."""
    schema: Path
    """A schema file."""


def sample_dataset(name: str = "adult") -> SampleDataset:
    """The sample data set with this name, in an installed package or in a source checkout.

    Raises:
        InputError: there is no such data set.
    """
    for folder in (_PACKAGE / "datasets", _PACKAGE.parent / "datasets"):
        sample = SampleDataset(folder / name / f"{name}.csv.gz", folder / name / "schema.json")
        if sample.data.is_file() and sample.schema.is_file():
            return sample
    raise InputError(f"sample data set {name!r} is not installed: reinstall the package")
