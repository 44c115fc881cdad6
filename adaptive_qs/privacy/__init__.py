"""Privacy accounting, and the only modules that draw privacy noise."""

from typing import Final, Literal

DEFAULT_NEIGHBOURS: Final[Literal["add-remove"]] = "add-remove"
