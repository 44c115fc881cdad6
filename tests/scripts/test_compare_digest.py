"""What the digest says of given records: best, losses, bad ends; and that plots are drawn."""

import csv
import json

import pytest

from scripts.compare.digest import write_digest
from scripts.compare.losses import answer_losses, table_losses
from scripts.compare.plots import against_epsilon, write_plots
from scripts.compare.summary import Spread, groups_of


def record(mechanism="adaptive", kind="ours", seed=1, error=0.2, epsilon=1.0, **changes):
    """A record as the harness writes it."""
    errors = {
        "mean_l1": error,
        "max_l1": 2 * error,
        "mean_l2": error / 2,
        "total_variation": {"1": error / 4, "2": error / 2},
        "rows": 100,
    }
    answers = {"raw": errors, "projected": errors} if kind in ("ours", "answers") else None
    budget = None if kind == "floor" else epsilon
    made = {
        "key": f"{mechanism}-{epsilon}-{seed}",
        "table": "toy",
        "fingerprint": "abcdef0123",
        "ways": 2,
        "epsilon": budget,
        "delta": None if kind == "floor" else 1e-9,
        "mechanism": mechanism,
        "title": mechanism,
        "settings": {},
        "seed": seed,
        "kind": kind,
        "shape": [100, 3],
        "limit_s": 60.0,
        "date": "2026-01-01T00:00:00+00:00",
        "commit": None,
        "machine": {
            "cpu": "a processor",
            "cores": 2,
            "memory_gb": 8.0,
            "cells_at_once": 1,
            "threads_per_cell": 2,
        },
        "outcome": "finished",
        "why": "",
        "wall_seconds": 3.0,
        "cpu_seconds": 2.0,
        "peak_memory_mb": 100.0,
        "table_error": None if kind == "answers" else errors,
        "answer_error": answers,
        "table_seconds": None if kind == "answers" else 3.0,
        "answer_seconds": None if answers is None else 2.5,
        "versions": {"package": "1.0"},
        "notes": [],
    }
    return made | changes


def unfinished(mechanism="slow", kind="peer", **changes):
    """The record of a cell that was killed at its limit: no errors at all."""
    made = record(mechanism, kind, **changes)
    for name in ("table_error", "answer_error", "table_seconds", "answer_seconds", "versions"):
        del made[name]
    return made | {"outcome": "unfinished", "why": "unfinished after 60 s"}


RECORDS = [
    *(record(seed=seed, error=error) for seed, error in enumerate((0.18, 0.2, 0.25))),
    record("aim", "peer", error=0.16),
    record("mst", "peer", error=0.3),
    record("independent", "baseline", error=0.4),
    record("residualplanner", "answers", error=0.24),
    record("bootstrap", "floor", error=0.05),
    unfinished("slow", "peer"),
]


def test_a_group_has_the_median_and_the_range_of_its_seeds():
    group = groups_of(RECORDS)[0]
    assert group.spreads["table_l1"] == Spread(0.2, 0.18, 0.25)
    assert group.outcomes == {"finished": 3}


def test_a_loss_is_named_with_its_size():
    (loss,) = table_losses(groups_of(RECORDS))
    assert (loss.ours.mechanism, loss.rival.mechanism) == ("adaptive", "aim")
    assert loss.percent == pytest.approx(25.0)
    assert not loss.overlap
    assert answer_losses(groups_of(RECORDS)) == []


def test_ranges_that_overlap_are_said_to():
    more = [*RECORDS, record("aim", "peer", seed=2, error=0.15)]
    more += [record("aim", "peer", seed=3, error=0.19)]
    (loss,) = table_losses(groups_of(more))
    assert loss.overlap


def test_answers_lose_against_a_plan_made_without_data():
    better = [*RECORDS, record("querysmasher", "answers", error=0.1)]
    (loss,) = answer_losses(groups_of(better))
    assert (loss.rival.mechanism, loss.measure) == ("querysmasher", "answer_l1")
    assert loss.percent == pytest.approx(100.0)


def test_the_default_is_held_against_its_variants_and_not_they_against_it():
    better = [record(error=0.2), record("adaptive-uniform", error=0.1)]
    (loss,) = table_losses(groups_of(better))
    assert (loss.ours.mechanism, loss.rival.mechanism) == ("adaptive", "adaptive-uniform")
    worse = [record(error=0.1), record("adaptive-uniform", error=0.2)]
    assert table_losses(groups_of(worse)) == []


@pytest.mark.parametrize("change", [{"epsilon": 2.0}, {"ways": 3}, {"fingerprint": "other"}])
def test_only_equal_settings_are_compared(change):
    one = record(error=0.2)
    rival = record("aim", "peer", error=0.1)
    assert len(table_losses(groups_of([one, rival]))) == 1
    assert table_losses(groups_of([one, rival | change])) == []


def test_the_page_names_best_losses_bad_ends_and_machine(tmp_path):
    paths = write_digest(RECORDS, tmp_path / "r.jsonl")
    assert [path.name for path in paths] == ["r.json", "r.csv", "r.md"]
    page = (tmp_path / "r.md").read_text()
    assert "| aim | **0.1600**, 3.0 s |" in page
    assert "| adaptive | 0.2000 (0.1800 to 0.2500), 3.0 s |" in page
    assert "| *bootstrap* | 0.0500, 3.0 s |" in page
    assert "| toy, 2-way, 1 | adaptive | 0.2000 | aim | 0.1600 | 25.0 % |" in page
    assert "| slow | unfinished after 60 s |" in page
    assert "a processor, 2 cores, 8 GB, 1 cell at once with 2 threads each" in page
    assert "or the default by a variant: nowhere in these results." in page


def test_numbers_are_written_for_programs(tmp_path):
    write_digest(RECORDS, tmp_path / "r.jsonl")
    document = json.loads((tmp_path / "r.json").read_text())
    (loss,) = document["numbers"]["losses"]
    assert (loss["rival"], loss["measure"]) == ("aim", "table_l1")
    with open(tmp_path / "r.csv", newline="") as file:
        first = next(csv.DictReader(file))
    assert first["mechanism"] == "adaptive"
    assert (first["seeds"], first["table_l1_median"], first["table_l1_max"]) == ("3", "0.2", "0.25")


def test_tables_of_one_name_and_other_content_are_kept_apart():
    other = record(seed=9) | {"fingerprint": "fedcba987"}
    assert [group.table for group in groups_of([record(), other])] == [
        "toy (abcdef)",
        "toy (fedcba)",
    ]


def test_plots_are_drawn_for_what_there_is(tmp_path):
    more = [replace_epsilon(one) for one in RECORDS]
    paths = write_plots(RECORDS + more, tmp_path / "r.jsonl")
    names = {path.name for path in paths}
    stems = ("error", "largest", "seconds", "time", "relative")
    assert names == {f"r_{stem}.{suffix}" for stem in stems for suffix in ("svg", "png")}
    assert (tmp_path / "r_error.png").read_bytes().startswith(b"\x89PNG")
    drawing = (tmp_path / "r_error.svg").read_text()
    for said in ("adaptive", "aim", "bootstrap", "toy, 2-way: tables", "mean L1 error"):
        assert f">{said}<" in drawing
    assert "slow" not in drawing


def test_an_error_of_zero_is_left_out_of_logarithmic_plots():
    groups = groups_of([*RECORDS, record("exact", "peer", error=0.0)])

    def named(measure):
        figure = against_epsilon(groups, (measure,), "label")
        return {text.get_text() for text in figure.legends[0].get_texts()}

    assert "exact" not in named("table_l1")
    assert "exact" in named("table_seconds")


def test_without_a_private_result_nothing_is_drawn(tmp_path):
    assert write_plots([unfinished()], tmp_path / "r.jsonl") == []
    assert write_plots([record("bootstrap", "floor")], tmp_path / "r.jsonl") == []


def replace_epsilon(one):
    return one | {"epsilon": one["epsilon"] and 10.0, "key": one["key"] + "+"}
