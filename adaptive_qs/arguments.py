"""Values that callers pass: numbers of Python and NumPy, names in a registry, and parameters."""

import math
import re
from collections import UserDict
from collections.abc import Collection, Mapping
from dataclasses import fields
from numbers import Integral, Real
from pathlib import PurePath
from pkgutil import resolve_name
from typing import Any, TypeVar

from adaptive_qs.errors import InputError

T = TypeVar("T")

LONGEST_SHOWN = 60
"""Maximum number of characters of a value in a message."""
DEFAULT_SHARE = 0.1
"""Share of the ρ of a run for learning bins and values."""


def as_integer(value: Any) -> int | None:
    """Return the value as an integer; None if it is not one (a boolean, text, 3.0)."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def as_number(value: Any) -> float | None:
    """Return the value as a double; None if it is no real number or exceeds the largest double."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def shown(value: Any, longest: int = LONGEST_SHOWN) -> str:
    """Return a value as text for a message, cut after ``longest`` characters.

    Of tables, arrays and other objects, which may hold private cells, only the type is shown.
    """
    whole = as_integer(value)
    number = as_number(value) if whole is None else whole
    if number is not None:
        value = number
    elif isinstance(value, list | tuple):
        if not all(item is None or isinstance(item, str | int | float) for item in value):
            return f"a {type(value).__name__}"
    elif value is not None and not isinstance(value, str | bool):
        return f"a {type(value).__name__}"
    if isinstance(value, str) and _is_content(value):
        return f"a text of {len(value):,} characters"
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}..."


_MOST_PATH, _MOST_NAME = 4_096, 255
"""Maximum number of characters of a path, and of bytes of a name in it, on common systems."""


def check_path(name: str, value: Any, refusal: type[InputError] = InputError) -> None:
    """Raise ``refusal`` if a text is longer than a path or has line breaks; do not quote it."""
    text = str(value) if isinstance(value, str | PurePath) else ""
    names = text.replace("\\", "/").split("/")
    long = len(text) > _MOST_PATH or any(
        len(n.encode("utf-8", "surrogatepass")) > _MOST_NAME for n in names
    )
    if long or _is_content(text):
        raise refusal(f"{name} is a text of {len(text):,} characters, not a path.")


def _is_content(text: str) -> bool:
    """Return whether a text has line breaks or zeros, as the content of a file but no path has."""
    return not {"\n", "\r", "\0"}.isdisjoint(text)


def positive_integer(name: str, value: Any) -> int:
    """Return the value as an integer; raise InputError unless it is above 0."""
    if (number := as_integer(value)) is None or number < 1:
        raise InputError(f"{name} is {shown(value)}. Use a positive integer.")
    return number


def natural_number(name: str, value: Any) -> int:
    """Return the value as an integer; raise InputError unless it is at least 0."""
    if (number := as_integer(value)) is None or number < 0:
        raise InputError(f"{name} is {shown(value)}. Use a non-negative integer.")
    return number


def positive_number(name: str, value: Any) -> float:
    """Return the value as a float; raise InputError unless it is positive and finite."""
    number = as_number(value)
    if number is None or not 0 < number < math.inf:
        raise InputError(f"{name} is {shown(value)}. Use a positive finite number.")
    return number


def learning_share(value: Any) -> float:
    """Return the share of a budget for learning; raise InputError unless it is between 0 and 1."""
    part = as_number(value)
    if part is None or not 0 < part < 1:
        raise InputError(
            f"learning-share is {shown(value)}. Use a part of the budget above 0 and below 1."
        )
    return part


def plain_json(value: Any) -> int | float:
    """Return a number of NumPy as one of Python, or raise TypeError; for ``json.dumps``."""
    whole = as_integer(value)
    number = as_number(value) if whole is None else whole
    if number is None:
        raise TypeError(f"{type(value).__name__} is no part of JSON")
    return number


def check_choice(what: str, name: Any, known: Collection[str]) -> str:
    """Return the name; raise InputError if it is not one of ``known``."""
    if isinstance(name, str) and name in known:
        return name
    raise InputError(f"{what} is {shown(name)}. Use one of {', '.join(known)}.")


class Registry(UserDict[str, T]):
    """Named entries of one kind.

    An entry given as "package.module:name" is imported at its first use, so that ``--help`` lists
    the names quickly.
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
        """Return the names for a sentence, as "a, b or c", without ``but``."""
        *others, last = (name for name in self.data if name != but)
        return f"{', '.join(others)} or {last}" if others else last


# What estimators of scikit-learn do, without its import, which takes longer than all of ours.


class Estimator:
    """A dataclass whose fields are its parameters, as scikit-learn expects them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as they were given; ``deep`` has no effect."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def set_params(self, **given: Any) -> Any:
        """Change parameters, and return the estimator; InputError for an unknown one."""
        for name, value in given.items():
            if name not in (known := _parameters(type(self))):
                raise InputError(
                    f"{type(self).__name__} has no parameter {name!r}. Use one of "
                    f"{', '.join(known)}."
                )
            setattr(self, name, value)
        return self

    def check_fitted(self) -> None:
        """Raise scikit-learn's NotFittedError before :meth:`fit`."""
        if not hasattr(self, "release_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(self).__name__} is not fitted: call fit, or load a release, first"
            )

    def __sklearn_tags__(self) -> Any:
        """Return the tags that pipelines of scikit-learn read."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(None, TargetTags(required=False), input_tags=InputTags(), requires_fit=True)

    def __repr__(self) -> str:
        """Return a call with the parameters that differ from their defaults."""
        known = _parameters(type(self))
        given = {name: getattr(self, name) for name in known}
        changed = [f"{n}={v!r}" for n, v in given.items() if v is not known[n]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the ledger's connection: a copy does not own the run."""
        return {**self.__dict__, "_run": None}


def _parameters(model: Any) -> Mapping[str, Any]:
    return {each.name: each.default for each in fields(model) if each.init}


def split_names(text: str) -> list[str]:
    """Return the parts of a text between commas; names with commas are written in backticks."""
    return [part.strip(" `") for part in re.findall("(?:`[^`]*`|[^,])+", text)]
