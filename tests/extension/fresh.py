"""A toy in a file of its own, named in a registry of a process that has imported nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys


def imported_in_either_order(folder, source, registry):
    """A module with this source, whose `Toy` a registry ("module:name") names, is found whether
    the module or what it builds on comes first."""
    (folder / "toy.py").write_text(source)
    package, name = registry.split(":")
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    named = f"from {package} import {name}\n{name}['toy'] = 'toy:Toy'\n"
    for first in ("", "import toy\n"):
        code = (
            f"{first}{named}import adaptive_qs.run.tables\nassert {name}['toy'].__module__ == 'toy'"
        )
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, check=True
        )
