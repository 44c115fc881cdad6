import ast
import json
import os
import subprocess
import sys
from itertools import combinations
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.compare.peers import install
from scripts.compare.peers.cliques import fitting

PEERS = Path(install.__file__).parent
DESCRIBED: dict[str, dict[str, str]] = json.loads((PEERS / "peers.json").read_text())
SCRIPTS = sorted(PEERS.glob("*.py"))
DOMAIN = {"a": 3, "b >1": 2, "c": 4}
FAKE = """
import os
import sys

sys.path.insert(0, {peers!r})
from contract import Fitted, main


def fit(job):
    import numpy as np

    def sample():
        codes = np.random.permutation(job.codes)
        codes[0, 0] += {shift}
        return codes

    settings = {{
        "threads": os.environ["OMP_NUM_THREADS"],
        "workload": job.workload,
        "budget": [job.epsilon, job.delta],
    }}
    return Fitted(sample, settings, ["a fake"])


main(["numpy"], fit)
"""


def write_job(folder: Path, **changes: Any) -> dict[str, Any]:
    codes = np.random.default_rng(0).integers(0, [3, 2, 4], size=(50, 3))
    np.save(folder / "codes.npy", codes)
    job = {
        "codes": str(folder / "codes.npy"),
        "domain": DOMAIN,
        "workload": [list(pair) for pair in combinations(DOMAIN, 2)],
        "epsilon": 1.0,
        "delta": 1e-9,
        "seed": 3,
        "threads": 2,
        "out": str(folder / "out.npy"),
        "report": str(folder / "report.json"),
        **changes,
    }
    (folder / "job.json").write_text(json.dumps(job))
    return job


def run_peer(python: str, script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [python, str(script), str(folder / "job.json")]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def run_fake(folder: Path, shift: int = 0) -> subprocess.CompletedProcess[str]:
    script = folder / "fake.py"
    script.write_text(FAKE.format(peers=str(PEERS), shift=shift))
    return run_peer(sys.executable, script, folder)


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_peer_has_a_title_and_a_script(name: str) -> None:
    assert DESCRIBED[name].keys() == {"script", "environment", "title"}
    assert PEERS / DESCRIBED[name]["script"] in SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_import_nothing_of_the_project(script: Path) -> None:
    tree = ast.parse(script.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"adaptive_qs", "scripts"}


@pytest.mark.parametrize("environment", install.environments())
def test_requirements_pin_every_package(environment: str) -> None:
    lines = (PEERS / f"requirements-{environment}.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    assert wanted
    assert all(line.count("==") == 1 and "+" not in line for line in wanted)


def test_a_peer_writes_codes_and_report(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    done = run_fake(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    synthetic = np.load(tmp_path / "out.npy")
    assert synthetic.shape == (50, 3)
    assert np.issubdtype(synthetic.dtype, np.integer)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report.keys() == {"versions", "settings", "seconds", "notes"}
    assert report["versions"] == {"numpy": np.__version__}
    assert report["seconds"].keys() == {"fit", "sample"}
    assert report["settings"] == {
        "threads": "2",
        "workload": job["workload"],
        "budget": [1.0, 1e-9],
    }


def test_the_seed_fixes_numpys_draws(tmp_path: Path) -> None:
    drawn = []
    for seed in (3, 3, 2**40 + 4):
        write_job(tmp_path, seed=seed)
        assert run_fake(tmp_path).returncode == 0
        drawn.append(np.load(tmp_path / "out.npy").tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_codes_outside_the_domain_are_a_fault_of_the_peer(tmp_path: Path) -> None:
    write_job(tmp_path)
    done = run_fake(tmp_path, shift=3)
    assert done.returncode == 1
    assert "codes outside the domain" in done.stderr
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"workload": [["a", "z"]]}, "the workload names ['z']"),
        ({"domain": {"a": 3}}, "codes have shape (50, 3) for 1 attributes"),
        ({"codes": "nowhere.npy"}, "FileNotFoundError"),
        ({"epsilon": None}, "TypeError"),
    ],
)
def test_a_wrong_job_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    write_job(tmp_path, **changes)
    done = run_fake(tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_or_broken_job_file_is_refused_in_one_line(tmp_path: Path) -> None:
    for content in (None, "{", "[]"):
        if content is not None:
            (tmp_path / "job.json").write_text(content)
        done = run_fake(tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_cliques_above_the_limit_give_way_to_their_largest_subsets() -> None:
    domain = {"a": 10, "b": 20, "c": 3, "d": 500}
    workload = list(combinations(domain, 3))
    kept = fitting(workload, domain, max_cells=600)
    assert kept == [
        ("a", "b", "c"),
        ("a", "b"),
        ("a",),
        ("d",),
        ("b",),
        ("a", "c"),
        ("c",),
        ("b", "c"),
    ]
    assert all(len(c) == 1 or prod(domain[name] for name in c) <= 600 for c in kept)


def test_cliques_within_the_limit_stay_as_they_are() -> None:
    workload = [("a", "b"), ("b",)]
    assert fitting(workload, {"a": 100, "b": 100}, max_cells=10_000) == workload


def test_install_refuses_an_unknown_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["install.py", str(tmp_path), "sdv"])
    with pytest.raises(SystemExit) as refused:
        install.main()
    assert refused.value.code == 2
    assert "no environment 'sdv': choose from dpmm" in capsys.readouterr().err


def test_install_leaves_an_environment_that_has_these_requirements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requirements = tmp_path / "requirements-none.txt"
    requirements.write_text("# nothing\n")
    target = tmp_path / "none"
    install.install(target, requirements)
    (target / "mark").touch()
    install.install(target, requirements)
    assert (target / "mark").exists()
    requirements.write_text("# nothing, but newer\n")
    install.install(target, requirements)
    assert not (target / "mark").exists()
    assert capsys.readouterr().out.count("there already") == 1


ENVIRONMENTS = os.environ.get("COMPARISON_PEERS", "")


@pytest.mark.skipif(not ENVIRONMENTS, reason="COMPARISON_PEERS names no folder of environments")
@pytest.mark.parametrize("name", DESCRIBED)
def test_an_installed_peer_keeps_the_contract(name: str, tmp_path: Path) -> None:
    write_job(tmp_path, domain=DOMAIN | {"c": 5}, epsilon=10.0)
    python = Path(ENVIRONMENTS) / DESCRIBED[name]["environment"] / "bin" / "python"
    done = run_peer(str(python), PEERS / DESCRIBED[name]["script"], tmp_path)
    assert done.returncode == 0, done.stderr
    synthetic = np.load(tmp_path / "out.npy")
    assert synthetic.shape[1] == 3
    assert (synthetic.max(axis=0) < [3, 2, 5]).all()
    assert json.loads((tmp_path / "report.json").read_text())["notes"]
