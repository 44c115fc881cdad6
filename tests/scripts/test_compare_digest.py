"""What the digest says of given records: best, losses, bad ends; and that plots are drawn."""

import json

import pytest

from scripts.compare.digest import write_digest
from scripts.compare.plots import write_plots
from scripts.compare.summary import groups_of, losses


def record(mechanism="adaptive", kind="ours", seed=1, error=0.2, epsilon=1.0, **changes):
    """A record as the harness writes it."""
    errors = {"mean_l1": error, "max_l1": 2 * error, "mean_l2": error / 2, "rows": 100}
    errors["total_variation"] = {"1": error / 4, "2": error / 2}
    answers = {"raw": errors, "projected": errors} if kind in ("ours", "answers") else None
    floor, tabled = kind == "floor", kind != "answers"
    machine = {"cpu": "a processor", "cores": 2, "memory_gb": 8.0}
    return {
        "key": f"{mechanism}-{epsilon}-{seed}", "table": "toy", "fingerprint": "abcdef0123",
        "ways": 2, "epsilon": None if floor else epsilon, "delta": None if floor else 1e-9,
        "mechanism": mechanism, "title": mechanism, "settings": {}, "seed": seed, "kind": kind,
        "shape": [100, 3], "limit_s": 60.0, "date": "2026-01-01T00:00:00+00:00", "commit": None,
        "machine": machine | {"cells_at_once": 1, "threads_per_cell": 2},
        "outcome": "finished", "why": "", "wall_seconds": 3.0, "cpu_seconds": 2.0,
        "peak_memory_mb": 100.0, "table_error": errors if tabled else None,
        "answer_error": answers, "table_seconds": 3.0 if tabled else None,
        "answer_seconds": answers and 2.5, "versions": {"package": "1.0"}, "notes": [],
    } | changes  # fmt: skip


def unfinished():
    """The record of a cell that was killed at its limit: no errors at all."""
    made = record("slow", "peer", outcome="unfinished", why="unfinished after 60 s")
    gone = ("table_error", "answer_error", "table_seconds", "answer_seconds", "versions")
    return {name: value for name, value in made.items() if name not in gone}


RECORDS = [
    *(record(seed=seed, error=error) for seed, error in enumerate((0.18, 0.2, 0.25))),
    record("aim", "peer", error=0.16),
    record("mst", "peer", error=0.3),
    record("independent", "baseline", error=0.4),
    record("residualplanner", "answers", error=0.24),
    record("bootstrap", "floor", error=0.05),
    unfinished(),
]


def lost(records):
    """The losses: what is compared, ours, the rival, by how many percent, and if ranges overlap."""
    return [
        (what, line["ours"], line["rival"], pytest.approx(line["percent"]), line["ranges_overlap"])
        for what, lines in losses(groups_of(records)).items()
        for line in lines
    ]


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (RECORDS, [("tables", "adaptive", "aim", 25.0, False)]),
        (
            [*RECORDS, *(record("aim", "peer", s, e) for s, e in ((2, 0.15), (3, 0.19)))],
            [("tables", "adaptive", "aim", 25.0, True)],
        ),
        (
            [*RECORDS, record("querysmasher", "answers", error=0.1)],
            [
                ("tables", "adaptive", "aim", 25.0, False),
                ("answers", "adaptive", "querysmasher", 100.0, False),
            ],
        ),
    ],
)
def test_losses_are_named_with_their_size(records, found):
    assert lost(records) == found


@pytest.mark.slow
def test_plots_are_drawn_for_what_there_is(tmp_path):
    more = [one | {"epsilon": one["epsilon"] and 10.0, "key": one["key"] + "+"} for one in RECORDS]
    names = {path.name for path in write_plots(RECORDS + more, tmp_path / "r.jsonl")}
    stems = ("error", "largest", "seconds", "time", "relative")
    assert names == {f"r_{stem}.{suffix}" for stem in stems for suffix in ("svg", "png")}
    assert (tmp_path / "r_error.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "r_error.svg").read_text()
    for said in ("adaptive", "aim", "bootstrap", "toy, 2-way: tables", "mean L1 error"):
        assert f">{said}<" in drawing
    assert "slow" not in drawing


def test_the_digest_names_what_is_best_and_what_is_lost(tmp_path):
    paths = write_digest(RECORDS, tmp_path / "r.jsonl")
    assert [path.name for path in paths] == ["r.json", "r.csv", "r.md"]
    page = (tmp_path / "r.md").read_text()
    assert "| aim | **0.1600**, 3.0 s |" in page
    assert "| slow | unfinished after 60 s |" in page
    (loss,) = json.loads((tmp_path / "r.json").read_text())["numbers"]["losses"]
    assert (loss["rival"], loss["measure"]) == ("aim", "table_l1")
