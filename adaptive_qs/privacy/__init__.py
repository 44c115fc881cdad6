"""What privacy costs (accounting) and the only places where privacy noise is drawn."""

from typing import Final, Literal

DEFAULT_NEIGHBOURS: Final[Literal["add-remove"]] = "add-remove"
DEFAULT_WEIGH: Final[Literal["rows"]] = "rows"
