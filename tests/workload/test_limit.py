"""What is left out of workloads that ask for too much: the rule against an oracle, and in use."""

from __future__ import annotations

import json
import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_qs.cli.entry import main
from adaptive_qs.cliques import downward_closure
from adaptive_qs.domain import Domain
from adaptive_qs.errors import GuardRailWarning, InputError
from adaptive_qs.release.release import Release
from adaptive_qs.run.memory import keep_what_fits, scored_bytes
from adaptive_qs.run.options import SynthesizeOptions
from adaptive_qs.run.tables import check_tables, forecast_scoring, select_candidates
from adaptive_qs.synthesizer import Synthesizer
from adaptive_qs.table.tables import TableSet
from adaptive_qs.workload.limit import Ceilings, limited
from adaptive_qs.workload.workload import Workload, listed_sets

DOMAIN = Domain.from_sizes(dict(zip("abcdef", (2, 7, 3, 1, 3, 5))))


def oracle(workload, ceilings):
    """Cliques that stay, by the words of the rule, and the weight that each column has in all."""
    domain = workload.domain
    asked = {}
    for clique, weight in workload.weights.items():
        several = tuple(i for i in clique if domain.sizes[i] > 1)
        if several:
            asked[several] = asked.get(several, 0) + weight
    inside = [c for c in downward_closure(asked) if c]

    def rank(clique):
        weight = sum(w for c, w in asked.items() if set(clique) <= set(c))
        cells = domain.size(clique)
        return (-weight / cells, cells, len(clique), clique)

    singles = [c for c in inside if len(c) == 1]
    others = sorted(
        (c for c in inside if len(c) > 1 and domain.size(c) <= ceilings.largest), key=rank
    )
    first = []
    for i in range(len(domain)):
        pairs = [c for c in others if len(c) == 2 and i in c]
        first += [c for c in pairs[:1] if c not in first]
    first.sort(key=rank)
    order = first + [c for c in others if c not in first]
    cells = sum(map(domain.size, singles))
    kept = list(singles)
    for clique in order[: ceilings.candidates]:
        cells += domain.size(clique)
        if cells > ceilings.cells:
            break
        kept.append(clique)
    held = [sum(w for c, w in asked.items() if i in c) for i in range(len(domain))]
    return set(kept), held


sets = st.sets(st.integers(0, 5), min_size=1, max_size=4).map(lambda s: tuple(sorted(s)))
weighted = st.dictionaries(sets, st.sampled_from([0.5, 1.0, 2.0, 8.0]), min_size=1, max_size=12)
ceilings = st.builds(
    Ceilings, st.integers(1, 30), st.integers(1, 600), st.sampled_from([20, 60, math.inf])
)


@given(weighted, ceilings)
def test_what_stays_is_what_the_rule_says_and_columns_keep_their_weight(weights, most):
    workload = Workload(DOMAIN, weights)
    kept, left = limited(workload, most)
    expected, held = oracle(workload, most)
    several = [c for c in kept.closure if c and all(DOMAIN.sizes[i] > 1 for i in c)]
    assert set(several) == expected
    for i, weight in enumerate(held):
        assert math.isclose(kept.relevance((i,)), weight) or DOMAIN.sizes[i] == 1
    if left is None:
        assert kept is workload
    else:
        assert left.candidates == len(expected)
        assert left.bound
        assert "\n" not in str(left)


def test_every_column_stays_in_a_pair_though_its_pairs_are_the_last_by_rank():
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2, "wide": 500})
    kept, left = limited(Workload.all_ways(domain, 3), Ceilings(3, 2**20))
    assert (0, 3) in kept.closure
    assert left is not None
    assert (left.requested, left.kept, left.candidates) == (4, 0, 7)
    assert left.bound == ("candidates",)


def test_weights_steer_what_stays():
    every = dict.fromkeys(combinations((0, 1, 2, 4, 5), 2), 1.0)
    heavy = Workload(DOMAIN, {**every, (1, 5): 1_000.0})
    for workload, stays in ((Workload(DOMAIN, every), False), (heavy, True)):
        kept, _ = limited(workload, Ceilings(5, 2**20))
        assert ((1, 5) in kept.weights) is stays


@pytest.mark.parametrize(("ways", "most"), [(3, 40), (3, 21), (2, 9), (4, 30)])
def test_too_many_sets_to_list_are_replaced_by_smaller_ones_of_the_same_weight(ways, most):
    sizes = [4, 2, 9, 3, 2, 8, 5, 2]
    domain = Domain.from_sizes({f"c{i}": n for i, n in enumerate(sizes)})
    listed = listed_sets(domain, ways, most)
    top, weights = listed[0]
    chosen = sorted({int(i) for i in top.ravel()})
    assert len(top) == math.comb(len(chosen), ways) <= most
    assert math.comb(len(chosen) + 1, ways) > most
    by_size = sorted(range(8), key=lambda i: (sizes[i], i))
    assert chosen == sorted(by_size[: len(chosen)])
    assert (weights == 1).all()
    workload = Workload.all_ways(domain, ways, most)
    assert sum(workload.unlisted.values()) == math.comb(8, ways) - len(top)
    if len(listed) == 2:  # what is not listed has its weight in the sets of one column less
        for i in range(8):
            assert workload.relevance((i,)) == pytest.approx(math.comb(7, ways - 1))


def test_nothing_is_left_out_of_what_fits():
    workload = Workload.all_ways(DOMAIN, 3)
    assert limited(workload, Ceilings(10**6, 10**9)) == (workload, None)
    assert keep_what_fits(workload, 1_000, 2**31) == (workload, None)


# In use.

SIZES = {f"c{i:03d}": 2 for i in range(200)}
FRAME = pd.DataFrame(np.random.default_rng(0).integers(2, size=(300, 200)), columns=list(SIZES))


def fitted(frame, schema, **options):
    with pytest.warns(GuardRailWarning, match="were dropped") as told:
        found = Synthesizer(rho=1.0, workers=1, **options).fit(frame, schema=schema)
    said = [str(w.message) for w in told if "were dropped" in str(w.message)]
    assert said == [found.release_.manifest.settings["left_out"]]
    return found


@pytest.mark.slow
def test_two_hundred_columns_at_three_ways_run(monkeypatch):
    monkeypatch.setattr("adaptive_qs.run.tables.MOST_LISTED", 22_000)
    found = fitted(FRAME, SIZES, workload=3, max_candidates=21_000)
    said = found.release_.manifest.settings["left_out"]
    assert "of 1,313,400 requested marginals" in said
    assert "21,200" in said
    assert found.rounds_
    select_candidates = found.release_.workload.cliques
    assert {len(c) for c in select_candidates} == {2, 3}
    assert {i for c in select_candidates for i in c} == set(range(200))


@pytest.mark.slow
def test_a_pair_too_large_for_the_memory_is_left_out_and_its_columns_stay():
    sizes = {"a": 12_000, "b": 12_000, "c": 2}
    frame = pd.DataFrame({"a": [1, 2] * 50, "b": [3, 4] * 50, "c": [0, 1] * 50})
    found = fitted(frame, sizes, max_memory="2GB")
    assert ": --max-memory)" in found.release_.manifest.settings["left_out"]
    assert set(found.release_.workload.cliques) == {(0,), (1,), (0, 2), (1, 2)}
    assert {(0,), (1,)} <= set(found.release_.estimates)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {name: rng.integers(n, size=400) for name, n in zip("abcdef", range(2, 8))}
    )
    frame.to_csv("t.csv", index=False)
    (tmp_path / "s.json").write_text(json.dumps(dict(zip("abcdef", range(2, 8)))))
    return frame


def test_commands_say_the_same_before_they_spend_whatever_the_rows(files, capsys, monkeypatch):
    ceilings = ["--ways", "3", "--max-candidates", "9", "--max-cells", "150", "--epsilon", "1"]
    assert main(["plan", "--schema", "s.json", *ceilings, "--json"]) == 0
    scoring = json.loads(capsys.readouterr().out)["scoring"]
    assert "at most 9 multi-column ones: --max-candidates, 150 cells in all" in scoring["left_out"]
    assert scoring["candidates"] <= 6 + 9
    assert scoring["cells"] <= 150
    assert main(["plan", "--schema", "s.json", *ceilings]) == 0
    assert "were dropped" in " ".join(capsys.readouterr().out.split())
    run = ["synthesize", "t.csv", "--schema", "s.json", *ceilings, "--force"]
    for rows in (files, files.iloc[:5], files.assign(a=0)):
        rows.to_csv("t.csv", index=False)
        assert main([*run, "--release", "r.zip"]) == 0
        said = capsys.readouterr().err
        assert f"warning: {scoring['left_out']}" in said
        assert Release.load("r.zip").manifest.settings["left_out"] == scoring["left_out"]
    monkeypatch.setattr(
        "adaptive_qs.loop.loop.measure_residuals", None
    )  # told before the first draw
    assert main([*run, "--release", "r.zip"]) != 0
    assert scoring["left_out"] in capsys.readouterr().err


def test_what_is_left_out_is_part_of_what_is_asked_for():
    schema = TableSet.parse(dict(zip("abcdef", range(2, 8))))

    def words(**options):
        asked = SynthesizeOptions(rho=1.0, workers=1, workload=3, **options)
        return check_tables(schema, asked).root.work.request_fields()

    assert words(max_candidates=9) == words(max_candidates=9)
    assert words(max_candidates=9) != words(max_candidates=8) != words()
    assert words(max_candidates=10**6) == words()


@pytest.mark.parametrize("bad", [0, -1, 1.5, "many", True])
def test_ceilings_that_are_no_positive_integers_are_refused(bad):
    for name in ("max_candidates", "max_cells"):
        with pytest.raises(InputError, match=name.replace("_", "-")):
            Synthesizer(rho=1.0, **{name: bad}).fit(None, schema={"a": 2})


def test_the_forecast_of_a_pass_counts_candidates_and_cells():
    workload = Workload.all_ways(DOMAIN, 2)
    candidates = [c for c in workload.closure if c and 3 not in c]
    assert len(candidates) == 15
    assert scored_bytes(workload)[:2] == (15, sum(map(DOMAIN.size, candidates)))


def test_the_memory_of_a_pass_is_within_the_ceiling():
    """Where there is room, more counts are kept."""
    domain = Domain.from_sizes({f"c{i}": 40 for i in range(20)})
    found = []
    for ceiling in (900, 4_000):
        asked = SynthesizeOptions(max_memory=f"{ceiling}MB", workers=1)
        workload, _ = select_candidates(3, domain, asked)
        found.append(forecast_scoring(workload, asked)[2] / 2**20)
        assert found[-1] < ceiling
    assert found[0] < found[1]


def test_a_plan_forecasts_what_synthesize_looks_at_where_answers_are_refused(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("adaptive_qs.run.tables.MOST_LISTED", 200)
    monkeypatch.setattr("adaptive_qs.workload.workload.MAX_CLIQUES", 500)
    sizes = dict.fromkeys(list(SIZES)[:16], 2)
    (tmp_path / "s.json").write_text(json.dumps(sizes))
    words = ["--schema", "s.json", "--ways", "3", "--max-candidates", "20", "--rho", "1"]
    assert main(["plan", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert set(found) == {"refused", "tables", "scoring"}
    assert found["refused"] in err
    assert "560, more than 500" in found["refused"]
    FRAME[list(sizes)].to_csv("t.csv", index=False)
    assert main(["synthesize", "t.csv", *words, "--release", "r.zip", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert found["scoring"]["left_out"] == made["left_out"]
    assert "of 560 requested marginals" in made["left_out"]
    assert main(["plan", *words, "--public-rows", "300"]) == 0
    out = capsys.readouterr().out
    assert "were dropped" in " ".join(out.split())
    assert "measured with a standard error" in out
    assert main(["plan", *words, "--mechanism", "identity"]) == 4
    capsys.readouterr()
    assert main(["plan", *words, "--queries", "prefix"]) == 4  # synthesize needs all of these
    assert "560, more than 500" in capsys.readouterr().err


def test_threads_change_neither_what_is_left_out_nor_what_is_measured(tmp_path, capsys):
    """The largest marginal would have fitted the memory with one thread, and not with eight."""
    (tmp_path / "s.json").write_text(json.dumps(sizes := {"a": 3000, "b": 3000, "c": 2}))
    words = ["plan", "--schema", str(tmp_path / "s.json"), "--max-memory", "2500MB", "--json"]
    told, asked = [], []
    for threads in (1, 8):
        assert main([*words, "--workers", str(threads)]) == 0
        told.append(json.loads(capsys.readouterr().out)["scoring"])
        options = SynthesizeOptions(rho=1.0, workers=threads, max_memory="2500MB", workload=2)
        work = check_tables(TableSet.parse(sizes), options).root.work
        asked.append((work.request_fields(), work.left_out, work.limits.measured_cells))
        assert work.limits.scoring_workers <= threads
    assert told[0] == told[1]
    assert asked[0] == asked[1]
    assert ": --max-memory)" in told[0]["left_out"]
