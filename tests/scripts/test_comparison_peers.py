"""What every peer of the comparison keeps to, its environment, and its workload."""

import ast
import json
from pathlib import Path

import pytest

from scripts.compare.peers import install

PEERS = Path(install.__file__).parent
DESCRIBED = json.loads((PEERS / "peers.json").read_text())
SCRIPTS = sorted(PEERS.glob("*.py"))


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_peer_has_a_title_and_a_script(name):
    assert DESCRIBED[name].keys() == {"script", "environment", "title"}
    assert PEERS / DESCRIBED[name]["script"] in SCRIPTS
    assert DESCRIBED[name]["environment"] in install.environments()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_import_nothing_of_the_project(script):
    imported = set()
    for node in ast.walk(ast.parse(script.read_text())):
        match node:
            case ast.Import(names=names):
                imported |= {alias.name.split(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module)):
                imported.add(module.split(".")[0])
    assert not imported & {"adaptive_qs", "scripts"}


@pytest.mark.parametrize("environment", install.environments())
def test_requirements_pin_every_package(environment):
    lines = (PEERS / f"requirements-{environment}.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    assert wanted
    assert all(line.count("==") == 1 and "+" not in line for line in wanted)
