"""The select-measure-reconstruct loop: it and `learn` alone see private counts and noise."""

from __future__ import annotations

from typing import Any

from adaptive_qs.arguments import Registry

DEFAULT_RULE = "aim"
SELECTION_RULES: Registry[Any] = Registry({DEFAULT_RULE: "adaptive_qs.loop.select:Selector"})
"""The rules that ``--rule`` can name, each a :class:`~adaptive_qs.loop.select.SelectionRule` made
with what :class:`~adaptive_qs.loop.select.Selector` takes."""
LEVELS = ("auto", "off")
"""Whether marginals are offered over groups of codes too: where that may pay, or never."""
