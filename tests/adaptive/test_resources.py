import pytest

from adaptive_qs.adaptive.resources import plan_memory
from adaptive_qs.domain import Domain
from adaptive_qs.errors import ResourceExceeded
from adaptive_qs.workload.workload import Workload

DOMAIN = Domain.from_sizes({"a": 500, "b": 400, "c": 300, "d": 2})
GB = 2**30


def plan(ways=2, max_memory=4 * GB, rows=50_000, workers=2):
    return plan_memory(DOMAIN, Workload.all_ways(DOMAIN, ways), rows, max_memory, workers)


def test_the_planned_peak_stays_below_the_ceiling_and_covers_what_is_fixed():
    for ceiling in (1 * GB, 4 * GB, 64 * GB):
        planned = plan(max_memory=ceiling)
        assert planned.fixed_bytes < planned.total_bytes <= ceiling


def test_the_largest_marginal_can_always_be_measured():
    assert plan().measured_cells >= 500 * 400


def test_more_memory_never_allows_less():
    plans = [plan(max_memory=size * GB) for size in (1, 2, 4, 8)]
    measured = [p.measured_cells for p in plans]
    watched = [p.watched_cells for p in plans]
    assert measured == sorted(measured)
    assert watched == sorted(watched)


def test_ceilings_never_exceed_what_the_candidates_hold():
    cells = 500 * 400 + 500 * 300 + 400 * 300 + 2 * (500 + 400 + 300) + 500 + 400 + 300 + 2
    assert plan(max_memory=64 * GB).measured_cells == cells


def test_a_workload_that_does_not_fit_is_refused_with_its_largest_marginal():
    with pytest.raises(ResourceExceeded) as error:
        plan(ways=3, max_memory=2 * GB)
    assert "a x b x c" in str(error.value)
    assert "60,000,000 cells" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_refusal_blames_the_workload_only_where_that_is_the_cause():
    with pytest.raises(ResourceExceeded, match=r"^the plan needs 4,\d\d\d MB .* --max-memory$"):
        plan(rows=50_000_000, max_memory=2 * GB)
