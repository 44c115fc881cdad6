"""The main job for callers of Python: a private table in, a release and synthetic tables out."""

from __future__ import annotations
