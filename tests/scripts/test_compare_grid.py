"""Which cells a grid has, and by what key the results file knows each."""

import json
from dataclasses import replace

import pytest

from scripts.compare.complaint import Complaint
from scripts.compare.grid import GRIDS, Cell, Grid, cells_of, key_of, parse_only
from scripts.compare.mechanisms import OURS, all_mechanisms, check_known

CELL = Cell("toy", 2, 1.0, 1e-9, "adaptive", "{}", 7, 60.0)
BLOCK = {
    "tables": ["a", "b"],
    "ways": [2, 3],
    "epsilons": [0.1, 1],
    "mechanisms": ["adaptive", "bootstrap"],
    "seeds": [1, 2],
    "limit_s": 60,
}


def grid(*blocks):
    return Grid.model_validate({"blocks": blocks})


def test_a_block_is_a_product_and_floors_have_no_epsilon():
    cells = cells_of(grid(BLOCK))
    private = [cell for cell in cells if cell.mechanism == "adaptive"]
    floors = [cell for cell in cells if cell.mechanism == "bootstrap"]
    assert len(private) == 2 * 2 * 2 * 2
    assert {cell.epsilon for cell in private} == {0.1, 1.0}
    assert {cell.delta for cell in private} == {1e-9}
    assert len(floors) == 2 * 2 * 2
    assert {(cell.epsilon, cell.delta) for cell in floors} == {(None, None)}


def test_the_first_of_two_equal_cells_stays():
    cells = cells_of(grid(BLOCK, BLOCK | {"limit_s": 5, "seeds": [2, 3]}))
    limits = {(cell.seed, cell.limit_s) for cell in cells}
    assert limits == {(1, 60.0), (2, 60.0), (3, 5.0)}


def test_settings_make_another_cell():
    changed = {"name": "adaptive", "settings": {"reference": "uniform"}}
    cells = cells_of(grid(BLOCK | {"mechanisms": ["adaptive", changed]}))
    assert len({key_of(cell.identity("f")) for cell in cells}) == 2 * 8


def test_a_key_is_the_same_in_every_version():
    """A results file outlives the program: this key must never change."""
    assert key_of(CELL.identity("0123456789abcdef")) == "11ea6f2a7b5595152fd4"


@pytest.mark.parametrize(
    "change",
    [{"ways": 3}, {"epsilon": 2.0}, {"delta": 1e-6}, {"mechanism": "x"}, {"seed": 8},
     {"settings": '{"a": 1}'}],
)  # fmt: skip
def test_a_key_tells_cells_apart(change):
    assert key_of(replace(CELL, **change).identity("f")) != key_of(CELL.identity("f"))


def test_a_key_knows_the_content_of_a_table_and_not_its_name_or_the_limit():
    key = key_of(CELL.identity("f"))
    assert key_of(replace(CELL, table="renamed", limit_s=1.0).identity("f")) == key
    assert key_of(CELL.identity("g")) != key


def test_only_leaves_the_cells_that_fit_all_filters():
    cells = cells_of(grid(BLOCK))
    wanted = parse_only(["table=a", "epsilon=1.0", "mechanism=adaptive", "seed=1", "seed=2"])
    left = [cell for cell in cells if cell.matches(wanted)]
    assert [(c.table, c.epsilon, c.ways) for c in left] == [("a", 1.0, 2), ("a", 1.0, 3)] * 2


@pytest.mark.parametrize("text", ["epsilon", "colour=red", "seed=one", "table="])
def test_a_filter_that_cannot_be_read_is_refused(text):
    with pytest.raises(Complaint, match="--only"):
        parse_only([text])


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("{}", "blocks"),
        ("not json", "file"),
        (json.dumps({"blocks": [BLOCK | {"seeds": []}]}), "blocks.0.seeds"),
        (json.dumps({"blocks": [BLOCK | {"epsilons": [-1]}]}), "blocks.0.epsilons.0"),
        (json.dumps({"blocks": [BLOCK | {"limit": 3}]}), "blocks.0.limit"),
    ],
)
def test_a_bad_grid_is_refused_in_one_line_that_says_where(tmp_path, content, where):
    path = tmp_path / "grid.json"
    path.write_text(content)
    with pytest.raises(Complaint) as refusal:
        Grid.load(str(path))
    assert f"grid.json: {where}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unknown_grid_names_the_known_ones():
    with pytest.raises(Complaint, match="published, quick"):
        Grid.load("nowhere")


@pytest.mark.parametrize("name", [path.stem for path in GRIDS.glob("*.json")])
def test_committed_grids_name_known_mechanisms_and_tables(name):
    from scripts.compare.tables import NAMES

    known = all_mechanisms(None)
    for block in Grid.load(name).blocks:
        assert set(block.tables) <= set(NAMES)
        for chosen in block.mechanisms:
            check_known(chosen.name, chosen.settings, known)


def test_unknown_mechanisms_and_settings_are_refused():
    known = all_mechanisms(None)
    assert set(OURS) <= set(known)
    with pytest.raises(Complaint, match="'mistery' is unknown"):
        check_known("mistery", {}, known)
    with pytest.raises(Complaint, match="no setting 'colour'"):
        check_known("adaptive", {"colour": 1}, known)
