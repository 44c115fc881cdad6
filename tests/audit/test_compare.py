"""Every way in which two runs may differ becomes a finding, and nothing else does."""

from dataclasses import replace

import numpy as np
import pytest

from adaptive_qs.audit.compare import Check, Tally, compare, squared_distance
from adaptive_qs.audit.replay import Recorder, Run, record, replay
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.entropy import InsecureSeed
from adaptive_qs.privacy.events import GaussianEvent, PartitionEvent, threshold_delta
from adaptive_qs.privacy.mechanisms import PrimitiveCall


def job(counts, scores=(5, 9), sensitivity=4, label="counts", extra=0, output=None):
    """Releases counts, chooses, and publishes what came out."""

    def run(mechanisms):
        noisy = mechanisms.release_counts(label, np.array(counts), 2, 100)
        chosen = mechanisms.select("select", np.array(scores), sensitivity, 0.5)
        for _ in range(extra):
            mechanisms.release_counts("one more", np.array([1]), 1, 100)
        published = noisy.tobytes() + bytes([chosen])
        return {"table": published if output is None else output}

    return run


def audited(here, there):
    recorded = record(here, Budget(1), InsecureSeed(0))
    replayed = replay(there, Budget(1), InsecureSeed(9), recorded)
    tally = Tally()
    compare(recorded, replayed, "a run", tally)
    return recorded, replayed, tally


def checks(tally):
    return {finding.check for finding in tally.findings}


def test_runs_that_differ_as_much_as_they_may_are_clean():
    recorded, replayed, tally = audited(job([3, 4]), job([2, 5], scores=(1, 13)))
    assert tally.findings == []
    assert recorded.artefacts == replayed.artefacts
    assert set(tally.made) == set(Check) - {Check.SEEN}


def fail(_):
    raise ZeroDivisionError


WRONG = {
    "counts": (job([1, 4]), {Check.COUNTS}),
    "one score": (job([3, 4], scores=(5, 14)), {Check.SCORES}),
    "sensitivity": (job([3, 4], sensitivity=5), {Check.COURSE}),
    "label": (job([3, 4], label="others"), {Check.COURSE}),
    "shape": (job([3, 4, 0]), {Check.COURSE}),
    "candidates": (job([3, 4], scores=(5, 9, 9)), {Check.COURSE}),
    "one more draw": (job([3, 4], extra=1), {Check.COURSE}),
    "output": (job([3, 4], output=b""), {Check.OUTPUTS}),
    "an error": (fail, {Check.COURSE}),
}


@pytest.mark.parametrize("case", WRONG)
def test_whatever_differs_is_found(case):
    there, expected = WRONG[case]
    _, _, tally = audited(job([3, 4]), there)
    assert expected <= checks(tally)


def test_a_draw_less_is_found():
    _, _, tally = audited(job([3, 4], extra=1), job([3, 4]))
    assert checks(tally) == {Check.COURSE}


def test_a_draw_that_is_not_charged_is_found():
    run, _, _ = audited(job([3, 4]), job([3, 4]))
    for charged in (run.charged[:-1], run.charged[::-1], (*run.charged, run.charged[0])):
        tally = Tally()
        compare(replace(run, charged=charged), run, "a run", tally)
        assert checks(tally) == {Check.CHARGED}


def test_distances_are_exact_beyond_64_bits():
    far = np.array([2**62, -(2**62), 0])
    assert squared_distance(far, -far // 2) == 2 * (2**62 + 2**61) ** 2
    assert squared_distance(np.array([3, 4]), np.array([0, 0])) == 25


def discovery(values, counts):
    event = PartitionEvent("values of city", 9, 20, threshold_delta(9, 20))
    return PrimitiveCall(event, np.array(counts), None, ("Ulm",), values)


@pytest.mark.parametrize(
    ("values", "counts", "clean"),
    [
        (("Bonn", "Ulm"), [4, 30], True),
        (("Ulm",), [30], False),
        (("Aalen", "Bonn", "Ulm"), [1, 5, 30], True),
        (("Aalen", "Bonn", "Ulm"), [1, 4, 30], False),
        (("Bonn", "Ulm"), [5, 31], True),
        (("Bonn", "Ulm"), [4, 31], False),
    ],
)
def test_discovered_values_may_move_by_one_row(values, counts, clean):
    one, other = discovery(("Bonn", "Ulm"), [5, 30]), discovery(values, counts)
    tally = Tally()
    compare(*(Run((call,), (call.event,), {}) for call in (one, other)), "a run", tally)
    assert (not tally.findings) is clean


def test_a_recorder_keeps_inputs_and_outputs():
    mechanisms = Recorder(Budget(1), InsecureSeed(0))
    noisy = mechanisms.release_counts("counts", np.array([3, 4]), 1, 100)
    (call,) = mechanisms.calls
    assert call.inputs.tolist() == [3, 4]
    assert call.output.tolist() == noisy.tolist()
    assert call.event == GaussianEvent("counts", 1, 100)
