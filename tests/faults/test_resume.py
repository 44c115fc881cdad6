"""What a resumed run recognises, what it refuses, and what nobody else ever gets to know."""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from adaptive_qs.machine import Fault

from .children import Child, Ended, at, small_groups
from .jobs import JOBS, LEDGER, Scene, Stage
from .kills import Story, finish, kill

PRIVATE = [job for job in JOBS if not job.seeded]
VERBS = pytest.mark.parametrize("job", PRIVATE, ids=lambda job: job.verb)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage(tmp_path_factory.mktemp("resume") / "stage")


def interrupted(stage, job):
    story = Story(stage.scene(job))
    assert kill(story, partial(at, Fault.COMMITTED, 2))
    return story


def attempt(scene: Scene, *arguments: str, preparations=()) -> Ended:
    logs = scene.logs / "other"
    logs.mkdir(exist_ok=True)
    return Child(arguments, scene.folder, logs, small_groups, *preparations).ended()


def refused(scene: Scene, *arguments: str) -> str:
    """The line that says why; nothing else happens."""
    before, names = scene.rows(), scene.names()
    ended = attempt(scene, *arguments)
    assert (ended.code, ended.out) == (2, ""), ended
    assert ended.err.count("\n") == 1
    assert (scene.rows(), scene.names() - names) == (before, set())
    return ended.err


@VERBS
def test_another_table_parameter_verb_version_or_key_is_refused_by_its_name(stage, job):
    story = interrupted(stage, job)
    scene, resumed = story.scene, [*job.arguments, "--resume", "--force"]
    table, schema, key = (scene.folder / name for name in ("t.csv", "s.json", f"{LEDGER}.key"))
    content = table.read_bytes()
    first, second, rest = content.split(b"\n", 2)
    for changed in (
        content + second + b"\n",
        content.replace(b"a,", b"b,", 1),
        first + b"\n" + rest,
    ):
        table.write_bytes(changed)
        words = "error: ledger: the private table is not the one that run 1 read. "
        assert refused(scene, *resumed).startswith(words)
    table.write_bytes(content)
    os.utime(table, (1, 1))  # the same content at another time, under another file
    shutil.copy(table, scene.folder / "copy.csv")
    table.unlink()
    (scene.folder / "copy.csv").rename(table)

    described = json.loads(schema.read_text())
    described["columns"][1]["max"] = 11
    other = scene.folder / "other.json"
    other.write_text(json.dumps(described))
    changes = {
        "schema": ["--schema", "other.json"],
        "budget": ["--rho", "0.25"],
        "workload": ["--ways", "1"],
        "noise seed": ["--insecure-seed", "3"],
    }
    another = "error: ledger: run 1 was started with another "
    for edit in (
        lambda content: content.update(description="words only"),
        lambda content: content["columns"][0].update(description="words only"),
        lambda content: content.update(about={"title": "words only"}),
    ):  # what the statement and the page would say of it
        worded = json.loads(schema.read_text())
        edit(worded)
        other.write_text(json.dumps(worded))
        assert refused(scene, *resumed, "--schema", "other.json").startswith(f"{another}schema. ")
    other.write_text(json.dumps(described))
    for name, arguments in changes.items():
        ended = attempt(scene, *resumed, *arguments)
        assert ended.code == 2, ended
        said = ended.err.splitlines()[-1].partition(another)[2]
        assert name in said.partition(". ")[0].split(", ")
    other.unlink()

    (verb,) = [one for one in PRIVATE if one is not job]
    assert f"{another}command. " in refused(scene, *verb.arguments, *resumed[-2:])
    ended = attempt(scene, *resumed, preparations=[newer])
    assert ended.code == 2
    assert ended.err.startswith(f"{another}version. ")
    secret = key.read_bytes()
    key.unlink()
    ended = attempt(scene, *resumed)
    assert ended.code == 2
    assert "the key that recognises tables is missing" in ended.err
    key.write_bytes(secret)
    key.chmod(0o600)
    finish(story, stage)


def newer():
    from adaptive_qs.run import states

    states.package_version = lambda: "99.0"


@VERBS
def test_nothing_is_left_to_resume_and_another_run_exceeds_the_total_before_any_draw(stage, job):
    scene = stage.scene(job)
    assert "no interrupted run to resume" in refused(scene, *job.arguments, "--resume")
    assert scene.run().code == 0
    names = scene.names()
    assert "no interrupted run to resume" in refused(scene, *job.arguments, "--resume", "--force")
    assert scene.names() == names
    rows, contents = scene.rows(), scene.contents()
    ended = scene.run()  # the total is enough for one
    assert ended.code == 3
    assert "left of" in ended.err
    assert (scene.rows(), scene.contents(), scene.noted("drawn")) == (rows, contents, [])


@VERBS
def test_a_damaged_ledger_is_refused_by_both_verbs(stage, job):
    story = interrupted(stage, job)
    path = story.scene.folder / LEDGER
    content = bytearray(path.read_bytes())
    row = story.rows[-1]
    at_ = content.rindex(row.hash)
    content[at_] ^= 1
    path.write_bytes(content)
    for extra in (["--resume"], ["--force"]):
        ended = attempt(story.scene, *job.arguments, *extra)
        assert ended.code == 2
        assert f"is damaged after entry {row.number - 1}, the last good one: " in ended.err


@VERBS
def test_a_run_goes_on_with_other_threads_and_other_outputs(stage, job):
    """What only concerns outputs or speed may change."""
    story = interrupted(stage, job)
    other = {"--workers": "2", "--out": f"p{Path(job.outputs[-1]).suffix}"}
    options = [other.get(before, word) for before, word in zip(["", *job.options], job.options)]
    outputs = (*job.outputs[:-1], other["--out"])
    story.scene.job = replace(job, options=tuple(options), outputs=outputs)
    assert not kill(story)
    assert story.scene.names() >= set(outputs)


@VERBS
def test_key_and_hashes_of_the_table_are_nowhere_else(stage, job):
    story = interrupted(stage, job)
    key = (story.scene.folder / f"{LEDGER}.key").read_text().strip()
    table = (story.scene.folder / "t.csv").read_bytes()
    plain = [hashlib.new(name, table).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")]
    secrets = [key, *plain]
    _check_absent(story.scene, secrets)
    finish(story, stage)
    _check_absent(story.scene, secrets)


def _check_absent(scene, secrets):
    exported = attempt(scene, "ledger", "export", "--ledger", LEDGER)
    files = [p for p in [*scene.folder.iterdir(), *scene.logs.iterdir()] if p.is_file()]
    contents = {p.name: p.read_bytes() for p in files if p.name != f"{LEDGER}.key"}
    assert {LEDGER, "journal", "err"} <= contents.keys()
    for secret in secrets:
        assert secret not in exported.out
        for content in contents.values():
            assert secret.encode() not in content
            assert bytes.fromhex(secret) not in content
