"""Families of queries as workload files name them, and the queries that they stand for."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    TypeAdapter,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from adaptive_qs.domain import Attribute, Domain
from adaptive_qs.errors import AdaptiveQsError, WorkloadError
from adaptive_qs.workload import FAMILIES, matrices
from adaptive_qs.workload.axes import AbsDiff, Affine, Circular, FirstCells, Marginal, Prefix, Range

Shape = tuple[int, ...]
ReadMatrix = Callable[[str, Shape], matrices.Custom]
"""The matrix in a file, whose columns run over the cells of a table of some shape."""


RANDOM_QUERIES_PER_CELL = 3
"""Number of random queries per cell by default, as in He et al., table 4."""


@dataclass(frozen=True)
class Random(matrices.MatrixQueries):
    """Queries whose coefficients are 1 with some probability and 0 otherwise (He et al., sec. 8.1).

    They are drawn from the seed and the shape alone, so all sets of attributes of one shape have
    the same queries. This randomness is public: it decides queries, not answers.

    Raises:
        WorkloadError: a parameter out of its range.
        ResourceExceeded: more than ``MAX_COEFFICIENTS`` coefficients.
    """

    shape: tuple[int, ...]  # sizes of the attributes covered, in order
    probability: float = 0.3  # of a one, in (0, 1]
    count: int | None = None  # None for ``RANDOM_QUERIES_PER_CELL`` times the cells
    seed: int = 0  # not negative

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise WorkloadError(f"p is {self.probability!r}. Use a number above 0 and at most 1.")
        if self.seed < 0:
            raise WorkloadError(f"seed is {self.seed}. Use a number that is not negative.")
        if self.count is None:
            object.__setattr__(self, "count", RANDOM_QUERIES_PER_CELL * self.size)
        if self.num_queries < 1:
            raise WorkloadError(f"count is {self.count}. Use a positive number of queries.")
        matrices.check_size(self.num_queries, self.size, "request fewer with count")

    @property
    def num_queries(self) -> int:
        return self.count or 0

    @property
    def _largest(self) -> float:
        return 1.0

    @property
    def coefficients(self) -> NDArray[Any]:
        """Zeros and ones, shape (m, N), one byte each; drawn when first needed."""
        return _draw(self.shape, self.probability, self.num_queries, self.seed)

    def labels(self, names: tuple[str, ...], values: tuple[tuple[str, ...], ...]) -> Iterator[str]:
        """Yield labels such as "random query 7 of seed 0"; on one attribute with its name."""
        of, seed = matrices.name_of_one(names), self.seed
        return (f"{of}random query {row + 1} of seed {seed}" for row in range(self.num_queries))


@lru_cache(maxsize=2)
def _draw(shape: tuple[int, ...], probability: float, count: int, seed: int) -> NDArray[np.uint8]:
    """Draw the matrix; keep the two last used, since drawing one takes as long as applying it."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, *shape))))
    cells = math.prod(shape)
    matrix = np.empty((count, cells), np.uint8)
    step = max(1, matrices.BLOCK // cells)
    for first in range(0, count, step):
        block = matrix[first : first + step]
        block[...] = generator.random(block.shape) < probability
    matrix.flags.writeable = False
    return matrix


class QueryFamily(BaseModel):
    """One kind of counting queries, with the parameters that a workload file gives it.

    The fields are the parameters: JSON Schema, reference pages and errors are made from them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    joint: ClassVar[bool] = False
    """Whether the queries are on all attributes of a set together."""
    needs_order: ClassVar[bool] = False
    """Whether the values of an attribute have to be in order."""
    kinds: ClassVar[tuple[type[matrices.Queries], ...]] = ()
    """Classes of queries that this family alone makes, from the sizes of attributes."""

    family: str

    @classmethod
    def of_name(cls, name: str) -> Self:
        """Build a family from its name alone; WorkloadError if a parameter has no default."""
        return cls(family=name)

    def on_axis(self, attribute: Attribute, read: ReadMatrix) -> matrices.AxisQueries:
        """Return the queries on one attribute; WorkloadError if it cannot carry them.

        Raise ResourceExceeded if there are too many coefficients.
        """
        if self.joint:
            return self.on_set((attribute.size,), (0,), read)
        if self.needs_order and not attribute.ordered:
            raise WorkloadError(
                f"attribute {attribute.name!r} is not ordered, so it cannot carry "
                f'{self.family!r} queries: ask for "marginal" or "hybrid", or declare it "ordered" '
                "in the schema"
            )
        return self.kinds[0](attribute.size)  # type: ignore[call-arg]

    def on_set(self, shape: Shape, order: tuple[int, ...], read: ReadMatrix) -> matrices.Queries:
        """Return the queries on several attributes together, if the family is ``joint``.

        ``shape`` has the sizes of the attributes as the file lists them, ``order`` what sorts them:
        the queries are over the attributes in ascending order. ``read`` and errors are as for
        :meth:`on_axis`.
        """
        raise NotImplementedError

    @classmethod
    def has_parameters(cls) -> bool:
        """Return whether the family has parameters besides its name."""
        return len(cls.model_fields) > 1


class MarginalFamily(QueryFamily):
    """Every value."""

    kinds = (Marginal,)


class PrefixFamily(QueryFamily):
    """Values up to every value."""

    kinds = (Prefix,)
    needs_order = True


class RangeFamily(QueryFamily):
    """Values from every value to every other."""

    kinds = (Range,)
    needs_order = True


class CircularFamily(QueryFamily):
    """Ranges that may go around the end; unknown and missing values are off the circle."""

    kinds = (Circular, FirstCells)
    needs_order = True

    def on_axis(self, attribute: Attribute, read: ReadMatrix) -> matrices.AxisQueries:
        circle = super().on_axis(replace(attribute, size=attribute.size - attribute.beyond), read)
        return FirstCells(attribute.size, circle) if attribute.beyond else circle


class HybridFamily(QueryFamily):
    """Prefixes where the values are in order, else every value."""

    def on_axis(self, attribute: Attribute, read: ReadMatrix) -> matrices.AxisQueries:
        return (Prefix if attribute.ordered else Marginal)(attribute.size)


class _PairFamily(QueryFamily):
    """Queries that compare the codes of two attributes."""

    joint = True

    def on_axis(self, attribute: Attribute, read: ReadMatrix) -> matrices.AxisQueries:
        """Refuse queries on one attribute."""
        raise WorkloadError(
            f"{self.family!r} queries compare two attributes and cannot ask about "
            f"{attribute.name!r} alone. Use sets of two, and the family for the whole set."
        )

    def on_set(self, shape: Shape, order: tuple[int, ...], read: ReadMatrix) -> matrices.Queries:
        """Return the queries; which attribute comes first makes no difference."""
        if len(shape) != 2:
            raise WorkloadError(
                f"{self.family!r} queries compare two attributes and the set has {len(shape)}: "
                "use sets of two"
            )
        return self.kinds[0](*(shape[axis] for axis in order))


class AffineFamily(_PairFamily):
    """Sums of two codes."""

    kinds = (Affine,)


class AbsDiffFamily(_PairFamily):
    """Differences of two codes."""

    kinds = (AbsDiff,)


class RandomQueries(QueryFamily):
    """Queries whose coefficients are 1 with probability p and 0 otherwise."""

    joint = True
    kinds = (Random,)

    family: Literal["random"]
    """Drawn from the seed, and the same for all sets of attributes of the same sizes."""
    p: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Probability that a cell is counted."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Number of queries about each set; three for each of its cells if left out."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Decides which queries are drawn; public."""

    def on_set(self, shape: Shape, order: tuple[int, ...], read: ReadMatrix) -> matrices.Queries:
        return Random(tuple(shape[axis] for axis in order), self.p, self.count, self.seed)


class CustomQueries(QueryFamily):
    """Queries given by their coefficients, one row each."""

    joint = True
    kinds = (matrices.Custom, matrices.CustomAxis)

    family: Literal["custom"]
    """Given by a file."""
    matrix: Annotated[str, Field(min_length=1)]
    """A file of numbers, .npy or .csv, with its path from the folder of the workload file. Columns
    run over the cells of the set, whose last attribute, as listed, changes fastest. A row of zeros
    is a query like others: its answer is 0, without error."""

    @classmethod
    def of_name(cls, name: str) -> Self:
        """Refuse: there is no matrix without a file."""
        raise WorkloadError(
            "'custom' queries need a matrix: "
            'write {"family": "custom", "matrix": "FILE.npy"} instead of the name'
        )

    def on_set(self, shape: Shape, order: tuple[int, ...], read: ReadMatrix) -> matrices.Queries:
        """Return the rows of the file, their cells in the order of the sorted attributes."""
        listed = read(self.matrix, shape).coefficients.reshape(-1, *shape)
        matrix = listed.transpose(0, *(axis + 1 for axis in order))
        return matrices.Custom(matrix.reshape(len(matrix), -1), matrix.shape[1:])


# In a file the queries of a part are a name ("prefix"), an object with a name and its parameters
# ({"family": "random", "p": 0.3}), or an object from attributes to either of these. An object holds
# parameters where its "family" is text and it says nothing else, or is "custom", or has no other
# text or object in it; any other object maps attributes. So an attribute may be called "family".


def _kind(value: Any) -> str:
    if isinstance(value, BaseModel):
        return _tag(getattr(value, "family", ""))
    if not isinstance(value, dict):
        return "[name]"
    family = value.get("family")
    others = [other for key, other in value.items() if key != "family"]
    has_names = any(isinstance(other, str | dict | BaseModel) for other in others)
    if not isinstance(family, str) or (has_names and family != "custom"):
        return "[mapping]"
    return _tag(family)


def _tag(family: str) -> str:
    return f"[{family}]" if family in FAMILIES and FAMILIES[family].has_parameters() else "[plain]"


def _attribute_kind(value: Any) -> str:
    kind = _kind(value)
    return "[plain]" if kind == "[mapping]" else kind


@lru_cache(maxsize=8)
def _specifications(families: tuple[tuple[str, type[QueryFamily]], ...]) -> TypeAdapter:
    """Return a validator of what a file may say of a set of attributes, given the families."""
    names: Any = Literal[tuple(name for name, _ in families)]
    plain: Any = Literal[tuple(name for name, kind in families if not kind.has_parameters())]
    no_parameters = create_model(
        "PlainQueries",
        __config__=ConfigDict(frozen=True, extra="forbid"),
        __doc__="Queries without parameters: the same as the name alone.",
        family=(plain, Field(description="The kind of queries.")),
    )
    one: Any = Annotated[names, Tag("[name]")] | Annotated[no_parameters, Tag("[plain]")]
    for name, kind in families:
        if kind.has_parameters():
            one |= Annotated[kind, Tag(f"[{name}]")]
    attribute = Annotated[one, Discriminator(_attribute_kind)]
    mapping = Annotated[dict[str, attribute], Tag("[mapping]")]  # type: ignore[valid-type]
    return TypeAdapter(Annotated[one | mapping, Discriminator(_kind)])


class _Registered:
    """Validated and described by the families that are registered at the time."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: _specifications(tuple(FAMILIES.items())).validate_python(
                value, strict=True
            )
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(_specifications(tuple(FAMILIES.items())).core_schema)


AttributeSpec = str | BaseModel
"""Queries on one attribute: the name of a family, or the family with its parameters."""
QuerySpec = Annotated[str | BaseModel | dict[str, AttributeSpec], _Registered]
"""Queries on a set of attributes."""


def with_parameters(spec: AttributeSpec) -> QueryFamily:
    """Return a family; if only named, with default parameters (WorkloadError if it lacks some)."""
    if isinstance(spec, QueryFamily):
        return spec
    (name,) = family_names(spec)
    return FAMILIES[name].of_name(name)


def family_names(spec: AttributeSpec | Mapping[str, AttributeSpec]) -> tuple[str, ...]:
    """Return the names of all families in a specification."""
    if isinstance(spec, Mapping):
        return tuple(name for one in spec.values() for name in family_names(one))
    return (spec if isinstance(spec, str) else str(spec.family),)  # type: ignore[attr-defined]


def find_family(queries: matrices.Queries) -> str:
    """Return the name of the family that makes such queries."""
    return next(name for name, family in FAMILIES.items() if type(queries) in family.kinds)


class QueryMaker:
    """A maker of queries on a domain, with matrix files in ``folder``; equal ones are made once."""

    def __init__(self, domain: Domain, folder: Path = Path()) -> None:
        self.domain = domain
        self._folder = folder
        self._made: dict[object, matrices.Queries] = {}
        self._matrices: dict[Path, NDArray[Any]] = {}

    def axis(self, attribute: int, spec: AttributeSpec) -> matrices.AxisQueries:
        """Return the queries on one attribute; errors as :meth:`QueryFamily.on_axis`."""
        return with_parameters(spec).on_axis(self.domain.attributes[attribute], self._matrix)

    def joint(self, listed: tuple[int, ...], family: QueryFamily) -> matrices.Queries:
        """Return the joint queries on several attributes, over them in ascending order.

        ``listed`` has positions as in the file; errors are as for :meth:`QueryFamily.on_set`.
        """
        key = (family, self.domain.shape(listed), tuple(np.argsort(listed).tolist()))
        if key not in self._made:
            made = family.on_set(key[1], key[2], self._matrix)
            self._made[key] = self._made.setdefault(made, made)
        return self._made[key]

    def _matrix(self, name: str, listed: Shape) -> matrices.Custom:
        path = self._folder / name
        if path not in self._matrices:
            self._matrices[path] = matrices.read_matrix(path)
        try:
            return matrices.Custom(self._matrices[path], listed)
        except AdaptiveQsError as error:
            raise type(error)(f"{path}: {error}") from None


# Queries on several attributes: products of families of one attribute, or one joint family.
# The queries of a product are ordered row-major: the last attribute varies fastest.

Array = NDArray[np.float64]


def count_queries(queries: Sequence[matrices.Queries]) -> int:
    """Return the number of queries of a product (exact)."""
    return math.prod(factor.num_queries for factor in queries)


def answer_product(queries: Sequence[matrices.Queries], table: Array) -> Array:
    """Return answers (m_1, ..., m_k) to a product of queries that cover the table's axes."""
    for factor in queries:
        degree = len(factor.shape)
        if degree != 1 and degree != table.ndim:
            raise ValueError("a joint family covers all axes of a table")
        table = np.moveaxis(factor.answer(table), 0, -1)
    return table


def squares_product(queries: Sequence[matrices.Queries | None], covariance: Array) -> Array:
    """Return diag((⊗Q) C (⊗Q)ᵀ), the variances of the answers to a product of queries.

    There is one family of one attribute for each axis; None sums the axis out, others have an axis
    of the result. C has shape (n_1, ..., n_k, n_1, ..., n_k) and is symmetric.
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
