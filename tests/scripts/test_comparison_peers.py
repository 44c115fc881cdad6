"""What every peer of the comparison keeps to, its environment, and its workload."""

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
from itertools import combinations
from math import prod
from pathlib import Path

import numpy as np
import pytest

from scripts.compare.peers import install
from scripts.compare.peers.cliques import fitting

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


def test_the_seed_fixes_numpys_draws(peer):
    drawn = []
    for seed in (3, 3, 2**40 + 4):
        peer.write_job(seed=seed)
        assert peer.run().returncode == 0
        drawn.append(np.load(peer.out).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_codes_outside_the_domain_are_a_fault_of_the_peer(peer):
    peer.write_job()
    done = peer.run(shift=3)
    assert done.returncode == 1
    assert "codes outside the domain" in done.stderr
    assert not peer.out.exists()


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        ({"workload": [["a", "z"]]}, "the workload names ['z']"),
        ({"domain": {"a": 3}}, "codes have shape (50, 3) for 1 attributes"),
        ({"codes": "nowhere.npy"}, "FileNotFoundError"),
        ({"epsilon": None}, "TypeError"),
        (None, "error: "),
        ("{", "error: "),
        ("[]", "error: "),
    ],
)
def test_a_wrong_missing_or_broken_job_is_refused_in_one_line(peer, job, complaint):
    if isinstance(job, dict):
        peer.write_job(**job)
    elif job is not None:
        peer.job.write_text(job)
    done = peer.run()
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_cliques_above_the_limit_give_way_to_their_largest_subsets():
    domain = {"a": 10, "b": 20, "c": 3, "d": 500}
    kept = fitting(list(combinations(domain, 3)), domain, max_cells=600)
    assert ["".join(clique) for clique in kept] == ["abc", "ab", "a", "d", "b", "ac", "c", "bc"]
    assert all(len(c) == 1 or prod(domain[name] for name in c) <= 600 for c in kept)
    workload = [("a", "b"), ("b",)]
    assert fitting(workload, {"a": 100, "b": 100}, max_cells=10_000) == workload


def test_install_refuses_an_unknown_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["install.py", str(tmp_path), "sdv"])
    with pytest.raises(SystemExit) as refused:
        install.main()
    assert refused.value.code == 2
    assert "no environment 'sdv': choose from dpmm" in capsys.readouterr().err


@pytest.mark.slow
def test_install_leaves_an_environment_that_has_these_requirements(tmp_path, capsys, monkeypatch):
    requirements, target = tmp_path / "requirements-none.txt", tmp_path / "none"
    create, ready = venv.create, tmp_path / "ready"

    def copied(path, **options):
        """As made before: pip takes seconds to get there."""
        if not ready.exists():
            create(ready, **options)
        assert options["clear"]
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(ready, path, symlinks=True)

    monkeypatch.setattr(venv, "create", copied)
    requirements.write_text("# nothing\n")
    environment = install.Environment(requirements)
    install.install(target, environment)
    (target / "mark").touch()
    install.install(target, environment)
    assert (target / "mark").exists()
    requirements.write_text("# nothing, but newer\n")
    install.install(target, environment)
    assert not (target / "mark").exists()
    assert capsys.readouterr().out.count("there already") == 1


def test_sources_come_from_archives_or_their_address(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(install, "create", lambda target, version: target.mkdir())
    monkeypatch.setattr(install, "run_pip", lambda target, *wanted: ran.append(wanted))
    requirements, archive = tmp_path / "requirements-x.txt", tmp_path / "near-1a.tar.gz"
    requirements.write_text("")
    archive.touch()
    sources = {name: (f"https://example.org/{name}", "1a") for name in ("near", "far")}
    install.install(
        tmp_path / "x", install.Environment(requirements, "3.9", sources), archive.parent
    )
    assert ran == [
        ("--requirement", str(requirements)),
        ("--no-deps", str(archive)),
        ("--no-deps", "https://example.org/far/archive/1a.tar.gz"),
    ]


def test_another_python_is_asked_for_by_name(tmp_path):
    with pytest.raises(SystemExit, match=r"no python2\.0 on the PATH: install it"):
        install.create(tmp_path / "x", "2.0")


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
