"""A short form of the long series of kills: each named fault once for each verb, and a few more."""

from functools import partial

import pytest

from adaptive_qs.ledger.entries import from_bytes
from adaptive_qs.machine import Fault

from .children import at
from .jobs import JOBS, Stage
from .kills import Story, finish, is_over, kill, run_kills

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return Stage(tmp_path_factory.mktemp("kills") / "stage")


@pytest.mark.parametrize("job", [job for job in JOBS if job.seeded], ids=lambda job: job.verb)
@pytest.mark.parametrize("fault", Fault)
def test_a_kill_at_each_named_fault(stage, job, fault):
    reference = stage.undisturbed(job)
    assert fault in reference.faults
    story = Story(stage.scene(job))
    last = reference.faults.count(fault)
    assert kill(story, partial(at, fault, min(last, 2)))
    assert story.kills == 1
    assert is_over(story) == (fault == Fault.CLOSED)
    finish(story, stage)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.verb}, seeded {job.seeded}")
def test_kills_in_a_row(stage, job):
    story = Story(stage.scene(job))
    for fault in (Fault.RESERVED, Fault.DRAWN, Fault.COMMITTED, Fault.CHARGED, Fault.DELIVERED):
        assert kill(story, partial(at, fault, 1))
    finish(story, stage)
    assert (story.kills, story.resumed) == (5, 5)


def test_kills_at_random(tmp_path):
    figures = run_kills(10, 1, tmp_path / "stage")
    assert figures["kills"] == 10
    assert figures["most_draws_redone_per_kill"] <= 1
    assert figures["most_spent_share"] <= 1


def test_an_answer_that_comes_back_otherwise_would_be_seen(stage):
    """The series can fail."""
    (job,) = [job for job in JOBS if job.verb == "answer" and not job.seeded]
    story = Story(stage.scene(job))
    assert kill(story, partial(at, Fault.COMMITTED, 2))
    with pytest.raises(AssertionError):
        kill(story, partial(_raise_counts))


def _raise_counts():
    """Hand out what was committed, plus one."""
    from adaptive_qs.ledger import entries

    entries.from_bytes = lambda kind, data: from_bytes(kind, data) + 1
