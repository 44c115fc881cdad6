"""Manifests of every version of the format, as the newest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adaptive_qs.data.schema import Schema
from adaptive_qs.errors import InputError
from adaptive_qs.privacy.events import Event
from adaptive_qs.release.facts import TABLES, facts_of
from adaptive_qs.release.manifest import Manifest
from adaptive_qs.release.paid import mechanisms_of
from adaptive_qs.release.statement import FORMAT_VERSION


def check_version(content: Any) -> None:
    """Refuse a manifest that this version cannot know.

    Raises:
        InputError: it was made by a newer version.
    """
    found = content.get("format_version") if isinstance(content, dict) else None
    if isinstance(found, int) and found > FORMAT_VERSION:
        raise InputError(
            f"made by a newer version (format {found}, this one reads up to {FORMAT_VERSION}): "
            "upgrade adaptive-qs"
        )


def read_manifest(content: Any, schema: Schema, events: Iterable[Event]) -> Manifest:
    """A manifest from parsed JSON.

    Format 1 had coarser facts: they are told anew from the charges and the schema beside them.

    Args:
        content: of any version up to this one.
        schema: of the same release.
        events: every charge of the release.

    Raises:
        ValueError: it is no manifest, or contradicts itself.
    """
    if isinstance(content, dict) and content.get("format_version") == 1:
        charged = tuple(events)
        content = {
            **content,
            "format_version": FORMAT_VERSION,
            "versions": {"adaptive-qs": content.get("package_version")},
            "accountant": "zCDP",
            "mechanisms": mechanisms_of(charged),
            "facts": facts_of(charged, schema, TABLES),
        }
    return Manifest.model_validate(content)
