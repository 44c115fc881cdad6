"""Proposed schemas: shared values and medians survive, identifiers and bad files do not."""

import numpy as np
import pandas as pd
import pytest

from adaptive_qs.data.binning import bins_for
from adaptive_qs.data.decode import decode
from adaptive_qs.data.encode import encode_file
from adaptive_qs.data.propose import propose, propose_schema
from adaptive_qs.data.quantiles import CROWDED
from adaptive_qs.data.review import AS_PROPOSED
from adaptive_qs.errors import DataError

CANARY = "c4n4ry"


def proposed(tmp_path, values, name="x"):
    """The proposed column, and the values after encoding and decoding by it."""
    path = tmp_path / "t.csv"
    pd.DataFrame({name: values}).to_csv(path, index=False)
    schema = propose_schema(path)
    table = encode_file(path, schema)
    return schema.columns[0], decode(table, schema, np.random.default_rng(0))[name].to_pandas()


def amounts(kind, n=4_000):
    rng = np.random.default_rng(7)
    heavy = np.exp(rng.normal(7, 1.5, n))
    return np.floor(heavy) + 1 if kind == "integers" else np.round(heavy, 2) + 0.01


@pytest.mark.parametrize("kind", ["integers", "two decimals", "no decimals"])
@pytest.mark.parametrize("atom", [0, 100, 999_999])
def test_a_shared_value_and_the_median_survive(tmp_path, kind, atom):
    values = amounts(kind)
    if kind == "no decimals":
        values = values / 3
    values = np.where(values > 99_999, 99_999, values)
    values[::10] = atom
    if kind == "integers":
        values = values.astype(int)
    column, made = proposed(tmp_path, values)
    assert column.num_values <= bins_for(len(values))
    assert (made == atom).sum() == pytest.approx((values == atom).sum(), abs=4)
    bulk, made_bulk = values[values != atom], made[made != atom]
    assert np.median(made_bulk) == pytest.approx(np.median(bulk), rel=0.1)
    for share in (0.1, 0.9):
        assert np.quantile(made_bulk, share) == pytest.approx(np.quantile(bulk, share), rel=0.25)
    ends = np.array(column.bin_starts if column.type == "integer" else column.bin_edges)
    width = bulk.max() - ends[ends < bulk.max()].max()
    assert made_bulk.max() <= bulk.max() + width / 2  # an end moves by half its bin at most


@pytest.mark.parametrize("top", [501, 99_999])
def test_integers_cut_off_at_the_top(tmp_path, top):
    rng = np.random.default_rng(1)
    values = np.minimum(rng.integers(1, top + top // 5, 3_000), top)
    _, made = proposed(tmp_path, values)
    assert (made == top).sum() == (values == top).sum()
    assert made.max() == top


@pytest.mark.parametrize("end", ["first", "last"])
@pytest.mark.parametrize(("part", "own"), [(0.013, True), (0.003, False)])
def test_the_code_that_ends_a_scale_gets_a_bin_of_its_own(tmp_path, end, part, own):
    """1.3 % of the rows are too few for a peak elsewhere, 0.3 % also at an end."""
    values = np.random.default_rng(3).integers(10_000, 60_000, 25_000)
    code = 70_000 if end == "last" else 2_000
    values[: int(part * len(values))] = code
    column, made = proposed(tmp_path, values)
    assert column.num_values <= bins_for(len(values))
    assert ((made == code).sum() == (values == code).sum()) == own


def test_a_rare_sentinel_gets_a_bin_of_its_own(tmp_path):
    values = amounts("two decimals", 2_000)
    values[:5] = -999_999
    _, made = proposed(tmp_path, values)
    assert (made == -999_999).sum() == 5
    assert made[made != -999_999].min() >= 0


def test_edges_are_round(tmp_path):
    column, _ = proposed(tmp_path, amounts("two decimals"))
    assert all(edge == float(f"{edge:.1e}") for edge in column.bin_edges[1:-1])


def test_a_tiny_minimum_becomes_zero(tmp_path):
    values = np.random.default_rng(0).random(500)
    values[3] = 5.397605346934028e-79
    column, _ = proposed(tmp_path, values)
    assert column.bin_edges[0] == 0
    assert column.bin_edges[-1] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("rows", [200, 5_000])
def test_few_numbers_stay_numbers_and_are_kept_exactly(tmp_path, rows):
    values = np.random.default_rng(0).choice([0.25, 0.5, 1.75, -3.0, 10.5], rows)
    column, made = proposed(tmp_path, values)
    assert (column.type, column.decimals, column.step) == ("numeric", 2, 0.25)
    np.testing.assert_array_equal(made, values)


@pytest.mark.parametrize(
    ("rows", "most"), [(1, 8), (256, 8), (1_000, 11), (10_000, 20), (65_536, 32), (10**9, 32)]
)
def test_bins_grow_with_the_fourth_root_of_the_rows(rows, most):
    assert bins_for(rows) == most


@pytest.mark.parametrize("rows", [30, 300, 3_000, 30_000])
def test_no_column_gets_more_bins_than_its_rows_allow(tmp_path, rows):
    """Values that keep a code each may be half as many again; one more of them, and there are
    bins."""
    rng = np.random.default_rng(rows)
    amount = np.round(rng.lognormal(7, 2, rows), 2)
    values = np.arange(rows)
    codes = bins_for(rows) * 3 // 2
    binned = {
        "normal": rng.normal(size=rows),
        "heavy": amount,
        "shared": np.where(rng.random(rows) < 0.5, 0, amount),
        "sentinels": np.where(rng.random(rows) < 0.2, rng.choice([-9, 999_999], rows), amount),
        "heaped": np.round(amount, -3) + rng.choice([0.0, 0.5], rows),
        "days": rng.integers(1, 180, rows),
        "one more": values % (codes + 1),
        "one more, apart": values % (codes + 1) * 100,
        "one more number": values % (codes + 1) / 10,
    }
    exact = {"as many": values % codes, "as many numbers": values % codes / 10}
    path = tmp_path / "t.csv"
    pd.DataFrame(binned | exact).to_csv(path, index=False)
    for column in propose_schema(path).columns:
        most = bins_for(rows) if column.name in binned else codes
        assert column.num_values <= most, column.name


@pytest.mark.parametrize("rows", [2_000, 50_000])
@pytest.mark.parametrize("kind", ["ages", "decreasing", "even", "just below", "heaped"])
def test_no_bin_of_several_values_holds_much_more_than_the_others(tmp_path, kind, rows):
    """Between values with bins of their own are at most ``CROWDED`` averages a bin; a quarter of
    those bins may go to tails, and each ends up to one average late, at the end of a value."""
    most = (CROWDED * 4 / 3 + 1) * rows / bins_for(rows)
    rng = np.random.default_rng(3)
    values = {
        "ages": 17 + np.minimum(rng.gamma(2.5, 9, rows), 73).astype(int),
        "decreasing": rng.geometric(0.05, rows),
        "even": rng.integers(0, 90, rows),
        "just below": 10 * rng.poisson(40, rows) - (rng.random(rows) < 0.7),
        "heaped": np.where(rng.random(rows) < 0.3, 10, 1) * rng.integers(0, 100, rows),
    }[kind]
    column, _ = proposed(tmp_path, values)
    starts = np.array(column.bin_starts or range(column.min, column.max + 1))
    inside = np.searchsorted(starts, values, side="right") - 1
    for k, held in enumerate(np.bincount(inside, minlength=len(starts))):
        alone = len(np.unique(values[inside == k])) <= 1
        assert alone or held <= most, (starts[k], held)


@pytest.mark.parametrize(("rows", "binned"), [(100, True), (1_000, False)])
def test_integers_get_bins_where_they_are_many_for_the_rows(tmp_path, rows, binned):
    """15 integers: the 8 bins of 100 rows leave 12 of them alone, the 11 of 1,000 rows 16."""
    column, _ = proposed(tmp_path, np.arange(rows) % 15)
    assert (column.num_values < 15) == binned
    assert (column.bin_starts is not None) == binned


def test_the_ends_of_a_range_are_round(tmp_path):
    values = np.random.default_rng(5).integers(11_234, 87_654, 5_000)
    column, _ = proposed(tmp_path, values)
    assert (column.min, column.max) == (11_000, 88_000)
    column, _ = proposed(tmp_path, values - 11_233)  # from 1, which may mean "at least one"
    assert column.min == 1
    column, _ = proposed(tmp_path, values - 11_200)
    assert column.min == 0


@pytest.mark.parametrize("values", [[0.5], [0.5] * 9, [1e-300, 2e-300, 1e300], [-0.5, 0.123456789]])
def test_odd_numbers_fit(tmp_path, values):
    proposed(tmp_path, values)


def test_many_distinct_numbers_in_order(tmp_path):
    """Beyond 100,000 distinct values neighbours are merged: quantiles stay, to within a bin."""
    values = np.arange(250_000) / 7
    _, made = proposed(tmp_path, values)
    assert np.median(made) == pytest.approx(np.median(values), rel=0.05)


def test_identifiers_are_left_out_with_the_reason(tmp_path):
    n = 1_200
    rng = np.random.default_rng(3)
    path = tmp_path / "t.csv"
    pd.DataFrame(
        {
            "rownames": range(1, n + 1),
            "SEQN": np.sort(rng.choice(np.arange(83_000, 93_000), n, replace=False)),
            "key": [f"k{i}" for i in range(n)],
            "long": [10**17 + i % 7 for i in range(n)],
            "pay": [f"{1_000 + 7 * i:,}" for i in range(n)],
            "age": rng.integers(0, 99, n),
            "none": [""] * n,
        }
    ).to_csv(path, index=False)
    proposal = propose(path)
    assert proposal.schema.names == ("age",)
    assert set(proposal.schema.ignore) == set(proposal.left_out)
    assert "'rownames', 'SEQN' (an identifier" in proposal.reasons[0]
    assert "thousands separators" in proposal.left_out["pay"]
    assert proposal.left_out["none"] == "empty"
    assert all(reason in proposal.schema.description for reason in proposal.reasons)


@pytest.mark.parametrize("header", [f"40,1.5,{CANARY}", "39,1e3,-7", "1,2"])
def test_a_first_line_of_data_is_refused_unquoted(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{header}\n")
    with pytest.raises(DataError) as caught:
        propose(path)
    assert str(caught.value) == f"{path}: the first line looks like data: add a header line"


@pytest.mark.parametrize("header", ["country,2000,2001,2002", "0,1,2,3", "1,b"])
def test_numbers_may_name_columns(tmp_path, header):
    path = tmp_path / "t.csv"
    width = header.count(",") + 1
    path.write_text(f"{header}\n" + ",".join("5" * width) + "\n")
    assert len(propose_schema(path).columns) == width


@pytest.mark.parametrize(
    ("start", "periods", "step", "repeats", "kind", "unit"),
    [
        ("2020-01-01", 24, "D", 1, "date", "day"),
        ("2020-01-01", 25, "D", 1, "date", "week"),
        ("2020-01-01", 60, "D", 1_100, "date", "day"),  # 66,000 rows: up to 64 periods
        ("2020-01-01", 365, "D", 1, "date", "month"),
        ("2020-01-01", 365, "D", 200, "date", "week"),
        ("2010-01-01", 2_191, "D", 1, "date", "quarter"),
        ("1920-01-01", 30_000, "D", 1, "date", "year"),
        ("2020-01-01", 24, "h", 1, "datetime", "hour"),
        ("2020-01-01", 25, "h", 1, "datetime", "day"),
        ("2020-01-01 00:30", 365, "D", 1, "datetime", "month"),
    ],
)
def test_granularity(tmp_path, start, periods, step, repeats, kind, unit):
    moments = pd.date_range(start, periods=periods, freq=step).repeat(repeats)
    pattern = "%Y-%m-%dT%H:%M:%S" if kind == "datetime" else "%Y-%m-%d 00:00:00"
    column, _ = proposed(tmp_path, moments.strftime(pattern))
    assert (column.type, column.granularity) == (kind, unit)


@pytest.mark.parametrize("rows", [30, 300, 3_000, 30_000])
@pytest.mark.parametrize("days", [1, 40, 400, 4_000])
def test_dates_get_the_finest_period_of_which_there_are_few(tmp_path, rows, days):
    """Twice as many periods as bins at most; a day has 24 hours, and no step is greater."""
    rng = np.random.default_rng(days)
    hours = np.append(rng.integers(0, 24 * days, rows - 2), [0, 24 * days - 1])
    column, _ = proposed(tmp_path, pd.Timestamp("2021-03-01") + pd.to_timedelta(hours, "h"))
    most = max(24, 2 * bins_for(rows))
    assert most / 24 <= column.num_values <= most


ORDERED = {
    "months": ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
    "units": ["< 1 year", "1 year", "2 years", "3 years", "10+ years"],
}


@pytest.mark.parametrize("case", ORDERED)
def test_labels_with_a_natural_order_are_put_into_it(tmp_path, case):
    rng = np.random.default_rng(2)
    column, _ = proposed(tmp_path, [*rng.permutation(ORDERED[case]), "?"])
    assert column.ordered
    assert list(column.values) == ORDERED[case]
    column, _ = proposed(tmp_path, [*ORDERED[case], "other"])
    assert not column.ordered


@pytest.mark.parametrize("words", [("yes", "no"), ("Y", "N"), ("t", "f"), ("Yes", "No")])
def test_answers_keep_the_spelling_of_the_file(tmp_path, words):
    values = list(words) * 5
    column, made = proposed(tmp_path, values)
    assert (column.type, sorted(column.values)) == ("categorical", sorted(words))
    assert made.tolist() == values


@pytest.mark.parametrize("words", [("true", "false"), ("True", "False"), ("TRUE", "FALSE")])
def test_truth_values_are_booleans(tmp_path, words):
    column, made = proposed(tmp_path, list(words) * 5)
    assert column.type == "boolean"
    assert made.tolist() == [True, False] * 5


def test_every_column_says_that_it_is_as_proposed(tmp_path):
    column, _ = proposed(tmp_path, ["a", "b"])
    assert column.description == AS_PROPOSED
