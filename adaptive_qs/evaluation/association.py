"""How strongly attributes depend on each other, in both tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Association:
    """Association matrices of both tables; owner only.

    Every matrix has shape (attributes, attributes), is symmetric and has entries from 0
    (independent) to 1 (one determines the other); the diagonal is 1.

    Attributes:
        names: of the attributes.
        cramers_v: of the true and of the synthetic table, bias-corrected.
        mutual_information: normalised by the smaller entropy, of the true and of the synthetic
            table.
    """

    names: tuple[str, ...]
    cramers_v: tuple[NDArray[np.float64], NDArray[np.float64]]
    mutual_information: tuple[NDArray[np.float64], NDArray[np.float64]]
