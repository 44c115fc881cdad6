"""SmartNoise's synthesizers on coded tables: the mechanisms without the data transformers."""

from __future__ import annotations

from typing import Any

from contract import Job

PACKAGES = ["smartnoise-synth", "mbi", "opendp", "jax", "numpy", "pandas"]

NOTES = [
    "The table is coded already: the mechanism is called on the coded table and its declared "
    "domain, without SmartNoise's transformers, which would take cardinalities from the data; the "
    "whole budget goes to the mechanism.",
    "SmartNoise publishes exactly as many rows as came in: it treats their number as public.",
    "Rows are drawn with mbi's method 'sample': its default, 'round', makes columns that share a "
    "parent in the model move together.",
]


def dataset(job: Job) -> Any:
    """The table as mbi's data set; columns are named by position, as SmartNoise does."""
    import pandas as pd
    from mbi import Dataset, Domain

    names = [f"col{i}" for i in range(len(job.domain))]
    return Dataset(
        pd.DataFrame(job.codes, columns=names), domain=Domain(names, list(job.domain.values()))
    )
