"""Which cells an experiment has: blocks of tables x ways x epsilons x mechanisms x seeds."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from scripts.compare.complaint import Complaint
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
        limit_s: wall-clock seconds that it may take; no part of the key.
    """

    table: str
    ways: int
    epsilon: float | None
    delta: float | None
    mechanism: str
    settings: str
    seed: int
    limit_s: float

    def identity(self, fingerprint: str) -> dict[str, Any]:
        """What tells this cell from every other, given the table's content."""
        return {
            "table": self.table,
            "fingerprint": fingerprint,
            "ways": self.ways,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "settings": json.loads(self.settings),
            "seed": self.seed,
        }

    def matches(self, wanted: Mapping[str, frozenset[str]]) -> bool:
        """Whether the cell has one of the wanted values in every field named; floors, which
        have no epsilon, match any."""
        for field, values in wanted.items():
            value = getattr(self, field)
            if value is not None and _text(value) not in values:
                return False
        return True

    def __str__(self) -> str:
        budget = "" if self.epsilon is None else f" epsilon {self.epsilon:g}"
        return f"{self.table} {self.ways}-way{budget} {self.mechanism} seed {self.seed}"


def key_of(identity: Mapping[str, Any]) -> str:
    """The key of a cell in the results file; the table counts by its content, not its name."""
    content = {name: value for name, value in identity.items() if name != "table"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def cells_of(grid: Grid) -> list[Cell]:
    """All cells in the order in which they run, each once; the first of two equal ones stays."""
    cells: dict[tuple[Any, ...], Cell] = {}
    for block in grid.blocks:
        for seed in block.seeds:
            for table in block.tables:
                for ways in block.ways:
                    for epsilon in block.epsilons:
                        for chosen in block.mechanisms:
                            cell = _cell(grid, block, table, ways, epsilon, chosen, seed)
                            cells.setdefault(_same(cell), cell)
    return list(cells.values())


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


def _cell(
    grid: Grid, block: Block, table: str, ways: int, epsilon: float, chosen: Chosen, seed: int
) -> Cell:
    private = chosen.name not in FLOORS
    return Cell(
        table,
        ways,
        epsilon if private else None,
        grid.delta if private else None,
        chosen.name,
        json.dumps(chosen.settings, sort_keys=True),
        seed,
        block.limit_s,
    )


def _same(cell: Cell) -> tuple[Any, ...]:
    return tuple(getattr(cell, name) for name in Cell.__annotations__ if name != "limit_s")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
