"""What every peer of the comparison keeps to, its environment, and its workload."""

import ast
import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from scripts.compare.peers import install

PEERS = Path(install.__file__).parent
DESCRIBED = json.loads((PEERS / "peers.json").read_text())
SCRIPTS = sorted(PEERS.glob("*.py"))
DOMAIN = {"a": 3, "b >1": 2, "c": 4}
FAKE = f"""
import os
import sys

sys.path.insert(0, {str(PEERS)!r})
from contract import Fitted, main


def fit(job):
    import numpy as np

    def sample():
        codes = np.random.permutation(job.codes)
        codes[0, 0] += SHIFT
        return codes

    settings = {{
        "threads": os.environ["OMP_NUM_THREADS"],
        "workload": job.workload,
        "budget": [job.epsilon, job.delta],
    }}
    return Fitted(sample, settings, ["a fake"])


main(["numpy"], fit)
"""


class Peer:
    """Runs the script of a peer on a job in a folder, by default a fake one."""

    def __init__(self, folder):
        self.folder, self.out, self.job = folder, folder / "out.npy", folder / "job.json"

    def write_job(self, **changes):
        codes = np.random.default_rng(0).integers(0, [3, 2, 4], size=(50, 3))
        np.save(self.folder / "codes.npy", codes)
        job = {
            "codes": str(self.folder / "codes.npy"), "domain": DOMAIN,
            "workload": [list(pair) for pair in combinations(DOMAIN, 2)], "epsilon": 1.0,
            "delta": 1e-9, "seed": 3, "threads": 2, "out": str(self.out),
            "report": str(self.folder / "report.json"), **changes,
        }  # fmt: skip
        self.job.write_text(json.dumps(job))
        return job

    def run(self, shift=0, python=sys.executable, script=None):
        if script is None:
            script = self.folder / "fake.py"
            script.write_text(FAKE.replace("SHIFT", str(shift)))
        command = [str(python), str(script), str(self.job)]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)

    def report(self):
        return json.loads((self.folder / "report.json").read_text())


@pytest.fixture
def peer(tmp_path):
    return Peer(tmp_path)


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


def test_a_peer_writes_codes_and_report(peer):
    job = peer.write_job()
    done = peer.run()
    assert (done.returncode, done.stderr) == (0, "")
    synthetic = np.load(peer.out)
    assert synthetic.shape == (50, 3)
    assert np.issubdtype(synthetic.dtype, np.integer)
    report = peer.report()
    assert report.keys() == {"versions", "settings", "seconds", "notes"}
    assert report["versions"] == {"numpy": np.__version__}
    assert report["seconds"].keys() == {"fit", "sample"}
    assert report["settings"] == {
        "threads": "2", "workload": job["workload"], "budget": [1.0, 1e-9],
    }  # fmt: skip


ENVIRONMENTS = os.environ.get("COMPARISON_PEERS", "")


@pytest.mark.skipif(not ENVIRONMENTS, reason="COMPARISON_PEERS names no folder of environments")
@pytest.mark.parametrize("name", DESCRIBED)
def test_an_installed_peer_keeps_the_contract(name, peer):
    peer.write_job(domain=DOMAIN | {"c": 5}, epsilon=10.0)
    python = Path(ENVIRONMENTS) / DESCRIBED[name]["environment"] / "bin" / "python"
    done = peer.run(python=python, script=PEERS / DESCRIBED[name]["script"])
    assert done.returncode == 0, done.stderr
    synthetic = np.load(peer.out)
    assert synthetic.shape[1] == 3
    assert (synthetic.max(axis=0) < [3, 2, 5]).all()
    assert peer.report()["notes"]
