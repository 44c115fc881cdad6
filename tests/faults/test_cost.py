import pytest

from .cost import cost


def test_the_time_of_a_run_is_taken_apart(tmp_path):
    """How large the parts are is the disk's affair: the assurance script reports it."""
    figures = cost(tmp_path, warm=False)
    parts = [figures[name] for name in ("noise", "hashing", "ledger")]
    assert figures["releases"] > 10
    assert min(parts) > 0
    assert sum(parts) < figures["total"]
    assert sum(parts) == pytest.approx(figures["share"] * figures["total"], rel=1e-9)
