"""What `synthesize` says when it is done, for people and for scripts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_qs.cli.ledger_summary import closing_json, closing_lines
from adaptive_qs.cli.output import Row, counted
from adaptive_qs.pages.names import first_of

if TYPE_CHECKING:
    from adaptive_qs.ledger.session import Closing
    from adaptive_qs.release.release import Release


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        data, schema: the files that went in.
        out, bundle: the files that came out, where asked for.
        release: what was released.
        rows: rows of the synthetic table, or of the one that the release gives by default.
        seconds: per phase.
        closed: the run in its ledger, where there is one.
    """

    data: Path
    schema: Path
    out: Path | None
    bundle: Path | None
    release: Release
    rows: int
    seconds: Mapping[str, float]
    closed: Closing | None

    def json(self) -> dict[str, Any]:
        """The fields that scripts rely on."""
        manifest = self.release.manifest
        return {
            "rows": self.rows,
            "rho": manifest.rho,
            "rho_spent": manifest.rho_spent,
            "epsilon": manifest.epsilon,
            "delta": manifest.delta,
            "unit": manifest.unit,
            "neighbours": manifest.neighbours,
            "rounds": len(self.release.rounds),
            "seconds": {phase: round(spent, 3) for phase, spent in self.seconds.items()},
            "peak_memory_mb": peak_memory_mb(),
            "seed_insecure": self.release.insecure,
            "out": None if self.out is None else str(self.out),
            "release": None if self.bundle is None else str(self.bundle),
            "ledger": closing_json(self.closed),
            "alone": list(self.alone),
        }

    @property
    def alone(self) -> tuple[str, ...]:
        """Columns whose combinations were asked for and none was measured."""
        from adaptive_qs.release.alone import alone_columns

        return alone_columns(self.release)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is poor about the release and its table, told from what was released."""
        doubts = self.release.doubts
        return doubts if self.warning is None else (*doubts, self.warning)

    @property
    def warning(self) -> str | None:
        """That columns are independent of all others; None where none is."""
        if not self.alone:
            return None
        from adaptive_qs.adaptive.forecast import MEND

        verb = "is" if len(self.alone) == 1 else "are"
        return f"{self._share_alone()} {verb} independent of all others at this budget: {MEND}"

    def lines(self) -> list[Row]:
        """The same for a data steward, with the next command to try."""
        manifest = self.release.manifest
        rows: list[Row] = []
        if self.release.insecure:
            rows.append(("NOT PRIVATE", manifest.stamp.partition(": ")[2]))
        if self.out is not None:
            width = len(self.release.schema.columns)
            size = f"{counted(self.rows, 'row')}, {counted(width, 'column')}"
            rows.append(("table", f"{self.out} ({size})"))
        rows += [
            ("release", str(self.bundle or "not kept (--release FILE would)")),
            ("privacy", f"epsilon {manifest.epsilon:.6g}, delta {manifest.delta:g}"),
            ("budget", f"rho {manifest.rho:.6g} ({manifest.zcdp}), {_share(manifest)} spent"),
            *closing_lines(self.closed),
            ("protects", f"{manifest.unit}; neighbouring tables {manifest.neighbours}"),
            ("measured", _measured(self.release)),
            *self._alone_row(),
            ("seconds", ", ".join(f"{phase} {spent:.1f}" for phase, spent in self.seconds.items())),
        ]
        if (peak := peak_memory_mb()) is not None:
            rows.append(("memory", f"{peak:,.0f} MB at most"))
        piped = " < DATA" if "-" in self._next() else ""
        words = shlex.join(["python", "-m", "adaptive_qs", *self._next()])
        return [*rows, ("next", words + piped)]

    def _alone_row(self) -> list[Row]:
        alone = self.alone
        if not alone:
            return []
        shown = f"{first_of(alone, 6)}: no combination measured"
        return [("alone", f"{self._share_alone()}: {shown}")]

    def _share_alone(self) -> str:
        """Such as "2 of 15 columns"."""
        return f"{len(self.alone):,} of {counted(len(self.release.schema.columns), 'column')}"

    def _next(self) -> list[str]:
        if self.out is None:
            return ["sample", str(self.bundle), "--out", "table.csv"]
        learnt = any(getattr(column, "learnt", None) for column in self.release.schema.columns)
        schema = self.bundle if learnt and self.bundle is not None else self.schema
        return ["evaluate", str(self.data), str(self.out), "--schema", str(schema)]


def peak_memory_mb() -> float | None:
    """Largest resident size of this process so far, in MB (2**20 bytes); None if unknown."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def _share(manifest: Any) -> str:
    share = manifest.rho_spent / manifest.rho
    return "all" if share > 1 - 1e-6 else f"{share:.2%}"


def _measured(release: Release) -> str:
    """How much of the workload was measured as a whole, by the rule of the release's page."""
    from adaptive_qs.release.page.noise import is_measured

    domain = release.workload.domain
    inside = sum(is_measured(release.estimates, c, domain) for c in release.workload.cliques)
    whole = counted(len(release.workload), "marginal")
    return f"{inside:,} of {whole}, in {counted(len(release.rounds), 'round')}"
