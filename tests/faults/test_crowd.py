"""Several processes on one ledger at once."""

from contextlib import closing
from functools import partial

import pytest

from adaptive_qs.ledger.book import LedgerBook
from adaptive_qs.machine import Fault
from adaptive_qs.privacy.events import Cost

from .children import Child, at, small_groups, waiting
from .crowd import reservations
from .jobs import JOBS, LEDGER, RHO, Stage
from .kills import Story, check, finish, kill

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage(tmp_path_factory.mktemp("crowd") / "stage")


def test_reservations_by_several_processes_of_which_some_are_killed(tmp_path):
    figures = reservations(4, 400, 4, tmp_path)
    assert figures["reservations"] >= 400
    assert figures["most_counted_share"] == 1


@pytest.mark.parametrize(("runs", "codes"), [(2, [0, 0]), (1, [0, 3])])
def test_two_runs_at_once(stage, runs, codes):
    scenes = [stage.scene(job) for job in JOBS if not job.seeded]
    shared = scenes[0].folder / LEDGER
    shared.unlink()
    LedgerBook.create(shared, Cost.within((runs + 0.5) * RHO), {"rho": 1.0, "delta": 1e-9}).close()
    for scene in scenes[1:]:
        (scene.folder / LEDGER).unlink()
        (scene.folder / LEDGER).symlink_to(shared)  # shares the locks and the key, too
    children = [scene.start() for scene in scenes]
    ended = [child.ended() for child in children]
    assert sorted(end.code for end in ended) == codes, ended
    for scene, end in zip(scenes, ended):
        assert scene.names() == (set() if end.code else set(stage.undisturbed(scene.job).contents))
        assert ("left of" in end.err) == (end.code == 3)
    with closing(LedgerBook(shared)) as book:
        book.verify()
        assert [run.state for run in book.runs()] == ["finished"] * runs
        assert book.held.fits(book.limit)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.verb}, seeded {job.seeded}")
def test_two_that_resume_at_once(stage, job, tmp_path):
    story, go = Story(stage.scene(job)), tmp_path / "go"
    assert kill(story, partial(at, Fault.COMMITTED, 2))
    first = story.scene.start(partial(waiting, Fault.CHARGED, go), resume=True)
    first.wait_for(Fault.CHARGED)
    second = Child(
        [*job.arguments, "--resume", "--force"], story.scene.folder, tmp_path, small_groups
    )
    refused = second.ended()
    go.touch()
    assert refused.code == 2
    words = "is being written by another run. Wait for its end, or use another path."
    assert refused.err.splitlines()[-1].endswith(words)
    assert first.ended().code == 0
    check(story)
    finish(story, stage)
