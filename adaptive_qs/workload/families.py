"""From the families that a workload file names to the queries on the attributes of a domain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_qs.domain import Domain
from adaptive_qs.errors import AdaptiveQsError, WorkloadError
from adaptive_qs.workload.axis_queries import Circular, Marginal, Prefix, Range
from adaptive_qs.workload.family_spec import (
    AttributeSpec,
    CustomQueries,
    OneFamily,
    PlainQueries,
    RandomQueries,
    with_parameters,
)
from adaptive_qs.workload.joint_queries import AbsDiff, Affine
from adaptive_qs.workload.matrix_file import read_matrix
from adaptive_qs.workload.matrix_queries import Custom, CustomAxis
from adaptive_qs.workload.queries import AxisQueries, Queries
from adaptive_qs.workload.random_queries import Random

AXIS_FAMILIES: Mapping[str, type[Marginal] | type[Prefix] | type[Range] | type[Circular]] = {
    "marginal": Marginal,
    "prefix": Prefix,
    "range": Range,
    "circular": Circular,
}
PAIR_FAMILIES: Mapping[str, type[Affine] | type[AbsDiff]] = {"affine": Affine, "absdiff": AbsDiff}


def is_joint(family: OneFamily) -> bool:
    """Whether queries of this family ask about all attributes of a set at once."""
    return not isinstance(family, PlainQueries) or family.family in PAIR_FAMILIES


class QueryMaker:
    """Makes queries; equal ones are made once and shared.

    Args:
        domain: the attributes.
        folder: where matrix files are; None where there are none.
    """

    def __init__(self, domain: Domain, folder: Path | None) -> None:
        self._domain = domain
        self._folder = folder or Path()
        self._made: dict[object, Queries] = {}
        self._matrices: dict[Path, NDArray[Any]] = {}

    def axis(self, attribute: int, spec: AttributeSpec) -> AxisQueries:
        """The queries on one attribute.

        Args:
            attribute: position in the domain.
            spec: what the file says of it.

        Raises:
            WorkloadError: the attribute cannot carry the family.
            ResourceExceeded: too many coefficients.
        """
        size = self._domain.sizes[attribute]
        family = with_parameters(spec)
        if isinstance(family, RandomQueries):
            return Random((size,), family.p, family.count, family.seed)
        if isinstance(family, CustomQueries):
            return CustomAxis(self._matrix(family, (size,)).coefficients)
        return AXIS_FAMILIES[self._on_axis(attribute, family.family)](size)

    def joint(self, listed: tuple[int, ...], family: OneFamily) -> Queries:
        """The queries on several attributes at once, over them in ascending order.

        Args:
            listed: positions in the domain, in the order in which the file lists them.
            family: for which :func:`is_joint` holds.

        Raises:
            WorkloadError: the attributes cannot carry the family.
            ResourceExceeded: too many coefficients.
        """
        if not isinstance(family, CustomQueries):
            listed = tuple(sorted(listed))
        key = (family, self._domain.shape(listed), tuple(np.argsort(listed).tolist()))
        if key not in self._made:
            self._made[key] = self._make_joint(*key)
        return self._made[key]

    def _make_joint(
        self, family: OneFamily, shape: tuple[int, ...], order: tuple[int, ...]
    ) -> Queries:
        """The queries on attributes of this shape, listed so that ``order`` sorts them."""
        if isinstance(family, RandomQueries):
            return Random(shape, family.p, family.count, family.seed)
        if isinstance(family, CustomQueries):
            listed = self._matrix(family, shape).coefficients.reshape(-1, *shape)
            matrix = listed.transpose(0, *(axis + 1 for axis in order))
            return Custom(matrix.reshape(len(matrix), -1), matrix.shape[1:])
        if len(shape) != 2:
            raise WorkloadError(
                f"{family.family!r} queries compare two attributes and the set has {len(shape)}: "
                "give sets of two"
            )
        return PAIR_FAMILIES[family.family](*shape)

    def _matrix(self, family: CustomQueries, listed: tuple[int, ...]) -> Custom:
        path = self._folder / family.matrix
        if path not in self._matrices:
            self._matrices[path] = read_matrix(path)
        try:
            return Custom(self._matrices[path], listed)
        except AdaptiveQsError as error:
            raise type(error)(f"{path}: {error}") from None

    def _on_axis(self, attribute: int, family: str) -> str:
        """The family itself, checked, or what hybrid stands for."""
        of = self._domain.attributes[attribute]
        if family in PAIR_FAMILIES:
            raise WorkloadError(
                f"{family!r} queries compare two attributes and cannot ask about {of.name!r} "
                "alone: give sets of two, and the family for the whole set"
            )
        if family == "hybrid":
            return "prefix" if of.ordered else "marginal"
        if family != "marginal" and not of.ordered:
            raise WorkloadError(
                f"attribute {of.name!r} is not ordered, so it cannot carry {family!r} queries: "
                'ask for "marginal" or "hybrid", or declare it "ordered" in the schema'
            )
        return family
