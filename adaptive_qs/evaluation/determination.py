"""Rules by which columns determine another, such as "city determines country"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adaptive_qs.evaluation.contingency import JointCodes


@dataclass(frozen=True)
class Determination:
    """A functional dependency, as the true table shows it.

    Every combination of the determining values stands for the value that it has in most true rows
    (the first code of several as frequent); where the rule holds, it has no other. A row breaks
    the rule where it has a combination that occurs in the true table and another value than that.
    So the share of broken true rows is the error g3 of Kivinen and Mannila (1995), the rows that
    would have to go. Combinations that no true row has cannot be judged, and break nothing.
    Missing and unknown are values like any other here.

    Attributes:
        lefts: positions of the determining columns.
        right: position of the determined one.
        names: of all of them, the determined one last.
    """

    lefts: tuple[int, ...]
    right: int
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """Such as "city determines country"."""
        verb = "determines" if len(self.lefts) == 1 else "determine"
        return f"{', '.join(self.names[:-1])} {verb} {self.names[-1]}"

    def shares(self, joint: JointCodes) -> tuple[float, float, float]:
        """Rows that break it: of the true table, of the synthetic, and of the true table were the
        determined column independent of the others."""
        combinations, _ = joint.ranks(self.lefts)
        values, bound = joint.ranks((self.right,))
        true = slice(None, joint.true_rows)
        cells, counts = np.unique(combinations[true] * bound + values[true], return_counts=True)
        of_cell, value = np.divmod(cells, bound)
        order = np.lexsort((value, -counts, of_cell))
        seen, first = np.unique(of_cell[order], return_index=True)
        expected = np.full(int(combinations.max()) + 1, -1, dtype=np.int64)
        expected[seen] = value[order][first]
        broken = (expected[combinations] >= 0) & (expected[combinations] != values)
        share = np.bincount(values[true], minlength=bound) / joint.true_rows
        independent = 1 - float(share[expected[combinations[true]]].mean())
        return (
            float(broken[true].mean()),
            float(broken[joint.true_rows :].mean()),
            max(0.0, independent),
        )
