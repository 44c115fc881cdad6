"""Templates to one file: everything inline, every text escaped, an undefined name is an error."""

from __future__ import annotations

import re
from functools import cache, partial
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from adaptive_qs.pages import names, numbers, palette

_BLANK = re.compile(r"\n\s*")


@cache
def _environment(packages: tuple[str, ...]) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(p) for p in (*packages, "adaptive_qs.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "plain": numbers.plain,
        "significant": numbers.significant,
        "signed": numbers.signed,
        "decimals": numbers.decimals,
        "share": numbers.share,
        "count": numbers.count,
        "counted": numbers.counted,
        "short": names.short,
        "joints": names.joints,
        "combination": names.combination,
        "listed": names.listed,
    }
    environment.globals |= {
        "shades": (*palette.sequential(), *palette.diverging()),
        "as_count": numbers.count,
        "as_share": partial(numbers.share, digits=2),
    }
    return environment


def render(template: str, packages: tuple[str, ...], **content: Any) -> str:
    """The page; the same content gives the same text.

    Args:
        template: its name.
        packages: whose folders ``templates`` are searched, before those of this package.
        content: what the template names.
    """
    page = _environment(packages).get_template(template).render(**content)
    return _BLANK.sub("\n", page).strip() + "\n"
