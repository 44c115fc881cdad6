"""Numbers on a grid: the step is found, bins have no gaps, and decoded values are multiples."""

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.data.codec import draw_values
from adaptive_qs.data.decode import decode
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.propose import propose_schema
from adaptive_qs.data.ranges import NumericColumn
from adaptive_qs.data.steps import Grid, grid_of


def proposed(tmp_path, values, form):
    """The proposed column, the codes of the values, and what these decode to."""
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["x", *(form % value for value in values)]) + "\n")
    schema = propose_schema(path)
    table = encode_file(path, schema)
    made = decode(table, schema, np.random.default_rng(0))["x"].to_numpy()
    return schema.columns[0], np.asarray(table.columns[0]), made


@pytest.mark.parametrize("rows", [400, 1_000, 3_000])
@pytest.mark.parametrize(
    ("lowest", "step", "count", "form"),
    [(1.0, 0.5, 9, "%.1f"), (0.0, 0.05, 4, "%.2f"), (-1.0, 0.25, 12, "%.2f"), (0, 0.2, 6, "%.2f")],
)
def test_few_regular_values_have_a_bin_each_and_no_more(tmp_path, lowest, step, count, form, rows):
    ranks = np.arange(rows) % count
    column, codes, made = proposed(tmp_path, lowest + step * ranks, form)
    assert column.num_values == count
    np.testing.assert_array_equal(codes, ranks)
    np.testing.assert_array_equal(made, np.round(lowest + step * ranks, 2))


def test_many_values_on_a_grid_are_drawn_from_it(tmp_path):
    values = np.round(np.random.default_rng(0).lognormal(2, 1, 5_000) * 20) / 20
    column, _, made = proposed(tmp_path, values, "%.2f")
    assert (column.decimals, column.step) == (2, 0.05)
    np.testing.assert_allclose(made / 0.05, np.rint(made / 0.05), atol=1e-9)
    assert len(np.unique(made)) > 2 * column.num_values


def test_numbers_that_were_merged_show_no_step(tmp_path):
    """Of more than 100,000 numbers some are dropped, such as every other one."""
    column, _, _ = proposed(tmp_path, np.arange(150_000) / 100, "%.2f")
    assert (column.decimals, column.step) == (2, None)


@pytest.mark.parametrize(
    ("values", "decimals", "grid"),
    [
        ([0.5, 1.0, 4.5], 1, Grid(1, 5)),
        ([-0.75, 1.5], 2, Grid(2, 25)),
        ([0.7, 1.4], 1, Grid(1)),
        ([1.5, 4.5], 1, Grid(1, 5)),
        ([0.1, 0.3], 2, Grid(1)),
        ([0.125, 1.0], 3, Grid(3, 125)),
        ([20.0, 40.0], 1, Grid(0, 20)),
        ([0.5], 1, Grid(1)),
        ([99_999_999.5, 0.0], 6, Grid(1, 5)),
    ],
)
def test_the_step_of_a_grid_is_a_usual_one(values, decimals, grid):
    assert grid_of(np.array(values), decimals) == grid


@pytest.mark.parametrize("grid", [Grid(0), Grid(1, 5), Grid(2, 5), Grid(2), Grid(6), Grid(3, 125)])
def test_the_next_numbers_of_a_grid(grid):
    """As multiples of the step, which are correctly rounded as 1, 2, 3 ... times it."""
    numbers = np.arange(-300, 300) * grid.multiple / 10**grid.decimals
    assert [grid.after(number) for number in numbers[:-1]] == numbers[1:].tolist()
    assert [grid.from_on(number) for number in numbers] == numbers.tolist()
    between = numbers[:-1] + 0.4 * grid.step
    assert [grid.after(number) for number in between] == numbers[1:].tolist()
    assert [grid.from_on(number) for number in between] == numbers[1:].tolist()


def test_all_multiples_in_a_bin_are_drawn_and_nothing_else():
    column = NumericColumn(
        name="x", type="numeric", edges=(-1.1, 0.3, 2.0, 3.2), decimals=1, step=0.5
    )
    drawn = draw_values(column, np.repeat([0, 1, 2], 400), np.random.default_rng(0)).to_numpy()
    made = pd.Series(drawn).groupby(np.repeat([0, 1, 2], 400)).unique().map(sorted).tolist()
    assert made == [[-1.0, -0.5, 0.0], [0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]
