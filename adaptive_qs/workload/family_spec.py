"""Families of queries as workload files name them, with their parameters.

In a file the queries of a part are a name ("prefix"), an object with a name and its parameters
({"family": "random", "p": 0.3}), or an object from attributes to either of these. An object holds
parameters where its "family" is text and it says nothing else, or is "custom", or has no other
text or object in it; any other object maps attributes. So an attribute may be called "family".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from adaptive_qs.errors import WorkloadError

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
