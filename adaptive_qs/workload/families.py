"""Families of queries as workload files name them, and the queries that they stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from adaptive_qs.domain import Domain
from adaptive_qs.errors import AdaptiveQsError, WorkloadError
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, Marginal, Prefix, Random, Range
from adaptive_qs.workload.matrices import Custom, CustomAxis, read_matrix
from adaptive_qs.workload.protocol import AxisQueries, Queries

# Families of queries as workload files name them, with their parameters.
#
# In a file the queries of a part are a name ("prefix"), an object with a name and its parameters
# ({"family": "random", "p": 0.3}), or an object from attributes to either of these. An object holds
# parameters where its "family" is text and it says nothing else, or is "custom", or has no other
# text or object in it; any other object maps attributes. So an attribute may be called "family".

Family = Literal[
    "marginal", "prefix", "range", "circular", "hybrid", "affine", "absdiff", "random", "custom"
]
"""Kinds of counting queries that a workload file may ask for."""


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PlainQueries(_Spec):
    """Queries without parameters: the same as the name alone."""

    family: Literal["marginal", "prefix", "range", "circular", "hybrid", "affine", "absdiff"]
    """The kind of queries."""


class RandomQueries(_Spec):
    """Queries whose coefficients are 1 with probability p and 0 otherwise."""

    family: Literal["random"]
    """Drawn from the seed, and the same for all sets of attributes of the same sizes."""
    p: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Probability that a cell is counted."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Number of queries about each set; three for each of its cells if left out."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Decides which queries are drawn; public."""


class CustomQueries(_Spec):
    """Queries given by their coefficients, one row each."""

    family: Literal["custom"]
    """Given by a file."""
    matrix: Annotated[str, Field(min_length=1)]
    """A file of numbers, .npy or .csv, beside the workload file or relative to it. Its columns
    run over the cells of the set, whose last attribute, as listed, changes fastest. A row of zeros
    is a query like others: its answer is 0, without error."""


def _kind(value: Any) -> str:
    if isinstance(value, BaseModel):
        return {"random": "[random]", "custom": "[custom]"}.get(
            getattr(value, "family", ""), "[plain]"
        )
    if not isinstance(value, dict):
        return "[name]"
    family = value.get("family")
    others = [other for key, other in value.items() if key != "family"]
    has_names = any(isinstance(other, str | dict | BaseModel) for other in others)
    if not isinstance(family, str) or (has_names and family != "custom"):
        return "[mapping]"
    return {"random": "[random]", "custom": "[custom]"}.get(family, "[plain]")


AttributeSpec = Annotated[
    Annotated[Family, Tag("[name]")]
    | Annotated[PlainQueries, Tag("[plain]")]
    | Annotated[RandomQueries, Tag("[random]")]
    | Annotated[CustomQueries, Tag("[custom]")],
    Discriminator(lambda value: "[plain]" if _kind(value) == "[mapping]" else _kind(value)),
]
"""What is asked of one attribute."""

QuerySpec = Annotated[
    Annotated[Family, Tag("[name]")]
    | Annotated[PlainQueries, Tag("[plain]")]
    | Annotated[RandomQueries, Tag("[random]")]
    | Annotated[CustomQueries, Tag("[custom]")]
    | Annotated[dict[str, AttributeSpec], Tag("[mapping]")],
    Discriminator(_kind),
]
"""What is asked of a set of attributes."""

OneFamily = PlainQueries | RandomQueries | CustomQueries


def with_parameters(spec: Family | OneFamily) -> OneFamily:
    """The family with its parameters, where only its name may have been given.

    Raises:
        WorkloadError: a custom matrix without its file.
    """
    if not isinstance(spec, str):
        return spec
    if spec == "custom":
        raise WorkloadError(
            "'custom' queries need a matrix: "
            'write {"family": "custom", "matrix": "FILE.npy"} instead of the name'
        )
    return RandomQueries(family=spec) if spec == "random" else PlainQueries(family=spec)


def family_names(spec: QuerySpec) -> tuple[str, ...]:
    """The names of all families in a specification."""
    if isinstance(spec, dict):
        return tuple(name for one in spec.values() for name in family_names(one))
    return (spec if isinstance(spec, str) else spec.family,)


# From the families that a workload file names to the queries on the attributes of a domain.

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


# Queries on several attributes: products of families of one attribute, or one joint family.
#
# The queries of a product are ordered row-major: those of the last attribute vary fastest.

Array = NDArray[np.float64]


def count_queries(queries: Sequence[Queries]) -> int:
    """Number of queries of a product (exact)."""
    return math.prod(factor.num_queries for factor in queries)


def answer_product(queries: Sequence[Queries], table: Array) -> Array:
    """Answers to a product of queries.

    Args:
        queries: factors that together cover the table's axes, in order.
        table: one axis per attribute.

    Returns:
        Shape (m_1, ..., m_k), one axis per factor.
    """
    for factor in queries:
        degree = len(factor.shape)
        if degree != 1 and degree != table.ndim:
            raise ValueError("a joint family covers all axes of a table")
        table = np.moveaxis(factor.answer(table), 0, -1)
    return table


def squares_product(queries: Sequence[Queries | None], covariance: Array) -> Array:
    """Variances of the answers to a product of queries: diag((⊗Q) C (⊗Q)ᵀ).

    Args:
        queries: one family of one attribute for each axis; None sums the axis out.
        covariance: shape (n_1, ..., n_k, n_1, ..., n_k), symmetric.

    Returns:
        One axis for each family that is not None.
    """
    k = len(queries)
    pairs = covariance.transpose([axis for i in range(k) for axis in (i, i + k)])
    for factor in queries:
        if factor is None:
            pairs = pairs.sum(axis=(0, 1))
        else:
            if k > 1:  # of slices that are not symmetric only the symmetric part counts
                pairs = (pairs + pairs.swapaxes(0, 1)) / 2
            pairs = np.moveaxis(factor.squares(pairs), 0, -1)
    return pairs
