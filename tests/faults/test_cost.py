from .cost import cost


def test_ledger_and_noise_cost_little_of_a_run(tmp_path):
    """A fifth at most is wanted; disks that sync slowly take more of it than this one."""
    figures = cost(tmp_path, warm=False)
    assert figures["releases"] > 10
    assert min(figures["noise"], figures["hashing"], figures["ledger"]) > 0
    assert figures["share"] < 0.2
