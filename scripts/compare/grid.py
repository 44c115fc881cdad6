"""Which cells an experiment has: blocks of tables x ways x epsilons x mechanisms x seeds."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from scripts.compare import Complaint
from scripts.compare.mechanisms import FLOORS

GRIDS = Path(__file__).parent / "grids"
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Chosen(BaseModel):
    """A mechanism and the settings in which it departs from its recommended ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    settings: dict[str, Any] = {}


class Block(BaseModel):
    """One product of tables, ways, epsilons, mechanisms and seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    tables: Annotated[tuple[str, ...], Field(min_length=1)]
    ways: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
    """The workload: all marginals of so many attributes."""
    epsilons: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(min_length=1)
    ]
    mechanisms: Annotated[tuple[Chosen, ...], Field(min_length=1)]
    """Names, or objects of a name and settings."""
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    limit_s: Seconds
    """Wall-clock seconds that a cell may take."""

    @field_validator("mechanisms", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return tuple({"name": one} if isinstance(one, str) else one for one in value)


class Grid(BaseModel):
    """Blocks in the order in which they run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-9
    blocks: Annotated[tuple[Block, ...], Field(min_length=1)]

    @classmethod
    def load(cls, name_or_file: str) -> Grid:
        """A committed grid by its name, or any JSON file.

        Raises:
            Complaint: there is no such grid, or it is not valid.
        """
        path = GRIDS / f"{name_or_file}.json"
        if not re.fullmatch(r"\w+", name_or_file) or not path.is_file():
            path = Path(name_or_file)
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in GRIDS.glob("*.json")))
            raise Complaint(f"grid {name_or_file!r}: no such file: give one, or one of {known}")
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"]) or "file"
            raise Complaint(f"{path.name}: {where}: {first['msg']}: correct the grid") from None
        except (OSError, UnicodeDecodeError):
            raise Complaint(f"{path.name}: cannot be read as text: check the file") from None


@dataclass(frozen=True)
class Cell:
    """One run of one mechanism.

    Attributes:
        table: name of the table.
        ways: the workload, all marginals of so many attributes.
        epsilon, delta: the budget; None for a floor, which has no privacy.
        mechanism: its name.
        settings: JSON text of what departs from its recommended settings, keys sorted.
        seed: of all its randomness.
        limit_s: wall-clock seconds that it may take; neither part of the key nor compared.
    """

    table: str
    ways: int
    epsilon: float | None
    delta: float | None
    mechanism: str
    settings: str
    seed: int
    limit_s: float = field(compare=False)

    def identity(self, fingerprint: str) -> dict[str, Any]:
        """What tells this cell from every other, given the table's content."""
        content = {"table": self.table, "fingerprint": fingerprint} | asdict(self)
        del content["limit_s"]
        return content | {"settings": json.loads(self.settings)}

    def key(self, fingerprint: str) -> str:
        """Its key in the results file; the table counts by its content, not its name."""
        content = self.identity(fingerprint)
        del content["table"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def matches(self, wanted: Mapping[str, frozenset[str]]) -> bool:
        """Whether the cell has one of the wanted values in every field named; floors, which
        have no epsilon, match any."""
        found = {name: getattr(self, name) for name in wanted}
        return all(v is None or _text(v) in wanted[name] for name, v in found.items())

    def __str__(self) -> str:
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        return f"{self.table} {self.ways}-way{budget} {self.mechanism} seed {self.seed}"


def cells_of(grid: Grid) -> list[Cell]:
    """All cells in the order in which they run, each once; the first of two equal ones stays."""
    cells: dict[Cell, None] = {}
    for block in grid.blocks:
        for seed, table, ways, epsilon, chosen in product(
            block.seeds, block.tables, block.ways, block.epsilons, block.mechanisms
        ):
            budget = (None, None) if chosen.name in FLOORS else (epsilon, grid.delta)
            settings = json.dumps(chosen.settings, sort_keys=True)
            cell = Cell(table, ways, *budget, chosen.name, settings, seed, block.limit_s)
            cells.setdefault(cell)
    return list(cells)


FIELDS = ("table", "ways", "epsilon", "mechanism", "seed")


def parse_only(filters: list[str]) -> dict[str, frozenset[str]]:
    """Filters such as ``mechanism=adaptive,independent`` by field.

    Raises:
        Complaint: an unknown field, or no values.
    """
    wanted: dict[str, frozenset[str]] = {}
    for text in filters:
        field, _, values = text.partition("=")
        if field not in FIELDS or not values:
            raise Complaint(f"--only {text!r}: give FIELD=VALUE,VALUE with one of {FIELDS}")
        numeric = field in ("ways", "epsilon", "seed")
        try:
            read = frozenset(_text(float(v)) if numeric else v for v in values.split(","))
        except ValueError:
            raise Complaint(f"--only {text!r}: {field} is a number") from None
        wanted[field] = wanted.get(field, frozenset()) | read
    return wanted


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
