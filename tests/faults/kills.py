"""kill -9 at any moment, again and again, and then a run that ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.ledger.entries import Closed, Released, Reserved, Row, parse_body
from adaptive_qs.machine import Fault
from adaptive_qs.release.release import Release

from .children import Child, at
from .jobs import JOBS, RHO, Scene, Stage

MOST_KILLS = 4
"""Of one run."""


@dataclass
class Story:
    """What happened to one run."""

    scene: Scene
    kills: int = 0
    resumed: int = 0
    drawn: int = 0
    seen: dict[int, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


def run_kills(count: int, seed: int, folder: Path) -> dict[str, object]:
    """Kill jobs of both verbs, at named and at random moments, and check what is left each time."""
    stage, draw = Stage(folder), random.Random(seed)
    named: Counter[str] = Counter()
    figures = Counter[str]()
    most_redone, most_spent = 0.0, 0.0
    while figures["kills"] < count:
        job = draw.choice(JOBS)
        story = Story(stage.scene(job))
        reference = stage.undisturbed(job)
        for _ in range(min(draw.randint(1, MOST_KILLS), count - figures["kills"])):
            if is_over(story):
                break
            if draw.random() < 0.5:
                fault = draw.choice(list(Fault))
                nth = draw.randint(1, reference.faults.count(fault))
                killed = kill(story, partial(at, fault, nth))
                named[fault] += killed
            else:
                killed = kill(story, after=draw.uniform(0, 1.1 * reference.seconds))
                figures["random"] += killed
            figures["kills"] += killed
        finish(story, stage)
        figures["runs"] += 1
        figures["resumed"] += story.resumed
        figures["releases"] += len(story.seen)
        if story.kills:
            most_redone = max(most_redone, (story.drawn - len(story.seen)) / story.kills)
        most_spent = max(most_spent, float(story.scene.state().spent.rho) / RHO)
    return {
        **figures,
        "named": dict(named),
        "most_draws_redone_per_kill": most_redone,
        "most_spent_share": most_spent,
    }


def kill(story: Story, *preparations: partial[None], after: float | None = None) -> bool:
    """Go on with a run until it is killed, and check what is left."""
    child = _attempt(story, *preparations)
    if after is not None:
        time.sleep(after)
        child.send(signal.SIGKILL)
    ended = child.ended()
    assert ended.code in (0, -signal.SIGKILL), ended
    story.kills += ended.code != 0
    check(story)
    return ended.code != 0


def finish(story: Story, stage: Stage) -> None:
    """Let a run come to its end, and check that it is the end of an undisturbed run."""
    if is_over(story):  # a process that was killed since keeps its claims for the next one
        for claim in story.scene.folder.glob(".*.claim"):
            claim.unlink()
    else:
        ended = _attempt(story).ended()
        assert ended.code == 0, ended
        check(story)
    scene, reference = story.scene, stage.undisturbed(story.scene.job)
    assert scene.state().state == "finished"
    assert scene.names() == set(reference.contents), scene.names()  # no temporary file, log or lock
    if scene.job.seeded:
        assert story.rows == reference.rows
        assert scene.contents() == reference.contents
    elif scene.job.verb == "synthesize":
        _check_table(scene)


def is_over(story: Story) -> bool:
    """Whether the run is closed."""
    return bool(story.rows) and isinstance(parse_body(story.rows[-1].body), Closed)


def check(story: Story) -> None:
    """Check all that must hold whenever a process has ended, and remember what happened."""
    before, story.rows = story.rows, story.scene.rows()
    assert story.rows[: len(before)] == before  # entries are only ever added
    bodies = [parse_body(row.body) for row in story.rows]
    assert sum(isinstance(body, Reserved) for body in bodies) <= 1
    released = {body.position: body for body in bodies if isinstance(body, Released)}
    committed = {body.position for body in map(_body, before) if isinstance(body, Released)}
    assert sorted(released) == list(range(len(released)))
    if len(bodies) > 1:
        story.scene.state()  # costs from the events, sums, and the outputs that are kept
    for (position,) in story.scene.noted("drawn"):
        assert int(position) not in committed  # what was committed is never drawn again
        story.drawn += 1
    for position, hashes in story.scene.noted("seen"):
        assert released[int(position)].outputs == tuple(hashes.split(","))
        assert story.seen.setdefault(int(position), hashes) == hashes
    assert story.drawn - len(released) <= story.kills  # at most the one in flight
    for name in story.scene.job.outputs:
        path = story.scene.folder / name
        if path.exists():
            _check_whole(path)


def _attempt(story: Story, *preparations: partial[None]) -> Child:
    resume = any(isinstance(_body(row), Reserved) for row in story.rows)
    story.resumed += resume
    return story.scene.start(*preparations, resume=resume)


def _check_whole(path: Path) -> None:
    """Any file under the name of an output is a whole one."""
    if path.suffix == ".zip":
        assert Release.load(path).num_rows > 0
    elif path.suffix == ".parquet":
        assert pq.read_table(path).num_rows > 0
    else:
        assert path.suffix == ".gz" or path.read_bytes().endswith(b"\n")
        assert pacsv.read_csv(path).num_rows > 0


def _check_table(scene: Scene) -> None:
    """The release gives the table again, byte for byte."""
    arguments = ["sample", "r.zip", "--seed", "5", "--out", "again.csv", "--workers", "1"]
    assert Child(arguments, scene.folder, scene.logs).ended().code == 0
    assert (scene.folder / "again.csv").read_bytes() == (scene.folder / "o.csv").read_bytes()


def _body(row: Row) -> object:
    return parse_body(row.body)
