"""Query workloads: what is refused, and counts that never overflow."""

import numpy as np
import pytest

from adaptive_qs.domain import Domain
from adaptive_qs.errors import WorkloadError
from adaptive_qs.workload.axis_queries import Prefix, Range
from adaptive_qs.workload.query_workload import QueryPart, QueryWorkload

DOMAIN = Domain.from_sizes({f"a{i}": 100_000 for i in range(6)})
SINGLES = np.array([[0], [1]], dtype=np.int32)


def part(weights, cliques=SINGLES, family=Prefix):
    return QueryPart(cliques, {i: family(100_000) for i in range(6)}, None, np.array(weights))


def test_weights_too_far_apart_are_refused():
    assert QueryWorkload(DOMAIN, (part([1.0, 2e-9]),)).num_sets == 2
    for parts in ([part([1.0, 5e-10])], [part([1.0, 1.0]), part([5e-10, 5e-10])]):
        with pytest.raises(
            WorkloadError, match=r"weights reach from .* more than a factor of 1e\+09 apart"
        ):
            QueryWorkload(DOMAIN, tuple(parts))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf, 1e-320, 9e-13, 1e308])
def test_bad_weights_are_refused(weight):
    with pytest.raises(WorkloadError, match=r"from 1e-12 to 1e\+12") as caught:
        part([1.0, weight])
    assert f"weight {weight!r}: give" in str(caught.value)


@pytest.mark.parametrize("weight", [1e-12, 1e12])
def test_the_ends_of_the_range_are_weights(weight):
    assert part([weight, weight]).weights.tolist() == [weight, weight]


def test_no_parts_and_no_sets_are_refused():
    with pytest.raises(WorkloadError, match="empty"):
        QueryWorkload(DOMAIN, ())
    with pytest.raises(WorkloadError, match="without attributes"):
        part([], np.empty((0, 1), dtype=np.int32))


def test_counts_are_exact():
    six = part([1.0], np.arange(6, dtype=np.int32)[None], Range)
    assert QueryWorkload(DOMAIN, (six,)).num_queries == (100_000 * 100_001 // 2) ** 6
