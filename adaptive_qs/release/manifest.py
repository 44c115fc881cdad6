"""The statement of a release of tables, with the public parameters that sampling needs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from adaptive_qs.release.statement import Positive, Statement

Finite = Annotated[float, Field(allow_inf_nan=False)]


class RoundRecord(BaseModel):
    """One round of the loop, in released values only."""

    model_config = ConfigDict(frozen=True)

    clique: Annotated[tuple[str, ...], FailFast()]
    """The attributes of the marginal selected."""
    noise_variances: Annotated[
        tuple[tuple[Annotated[tuple[str, ...], FailFast()], Positive], ...], FailFast()
    ]
    """The residuals measured, by their attributes, and the noise variance of each (rows²)."""
    rho_selecting: Positive
    rho_measuring: Positive
    moved: Finite
    """L1 distance between the marginal's estimates after and before (rows)."""
    expected: Finite
    """L1 error expected of the new estimate (rows)."""
    rescored: Annotated[int, Field(ge=0, le=2**62)]
    """Candidates rescored before the selection."""


class Manifest(Statement):
    """The privacy statement and the public parameters of a release."""

    kind: Literal["tables"] = "tables"
    watched_cells: Annotated[int, Field(ge=0, le=2**26)]
    """Most cells of the marginals watched while a table is refined."""
    most_rows: Annotated[int, Field(ge=1, le=2**62)]
    """Most rows of a table whose number of rows is not asked for."""
    alone: tuple[str, ...] | None = None
    """Columns of which no combination was measured, though asked for: in the tables they are
    independent of all others. None in a statement of a version that did not tell them."""

    @property
    def charges_in(self) -> str:
        """A member of the release bundle."""
        return "ledger.json of the release bundle"
