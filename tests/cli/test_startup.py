"""What a command imports: packages that take long to import are left to the runs that need them."""

import os
import subprocess
import sys

import pytest

from scripts.speed.house import LATE

HELP_SECONDS, IMPORT_SECONDS = 1.5, 6.0
"""Processor seconds; several times what an idle machine takes, since a busy one takes longer."""

LOADED = """
import sys
try:
    {code}
finally:
    print("loaded", *sys.modules)
"""


def modules(code):
    run = subprocess.run(
        [sys.executable, "-c", LOADED.format(code=code)], capture_output=True, text=True, check=True
    )
    return set(run.stdout.rpartition("loaded")[2].split())


def processor_seconds(*arguments):
    before = os.times()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system


def test_help_imports_no_numbers_and_no_validation():
    found = modules("from adaptive_qs.cli.entry import main; main(['--help'])")
    assert not found & {"numpy", "pandas", "pydantic", "pyarrow", "scipy", "numba", *LATE}
    assert "typer" in found


@pytest.mark.parametrize(
    ("most", "arguments"),
    [
        (HELP_SECONDS, ["-m", "adaptive_qs", "--help"]),
        (IMPORT_SECONDS, ["-c", "from adaptive_qs import Synthesizer"]),
    ],
)
def test_a_start_takes_no_longer_than_several_times_its_target(most, arguments):
    processor_seconds(*arguments)  # writes byte code
    assert processor_seconds(*arguments) < most
