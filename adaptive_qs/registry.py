"""Things by the names that the command line and files give them."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, TypeVar

T = TypeVar("T")


class Registry(UserDict[str, T]):
    """Names, and what each stands for.

    An entry may be written as "package.module:name": it is imported when it is first asked for, so
    that ``--help`` lists the names at no cost.
    """

    def __init__(self, entries: Mapping[str, T | str]) -> None:
        super().__init__()
        self.data: dict[str, Any] = dict(entries)

    def __getitem__(self, name: str) -> T:
        entry = self.data[name]
        if isinstance(entry, str):
            self.data[name] = entry = resolve_name(entry)
        return entry

    def listed(self, but: str | None = None) -> str:
        """The names for a sentence, as "a, b or c", but for one."""
        *others, last = (name for name in self.data if name != but)
        return f"{', '.join(others)} or {last}" if others else last
