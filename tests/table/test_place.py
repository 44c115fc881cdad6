"""Places: two columns of the data that are one in a run, and two again in its table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from adaptive_qs import Synthesizer
from adaptive_qs.audit.audit import audit
from adaptive_qs.errors import DataError, SchemaError
from adaptive_qs.evaluation.evaluation import evaluate
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.persons import FewRows
from adaptive_qs.table.write import write_table

from ..learn.helpers import schema_of

PLACE = {
    "name": "place", "type": "place", "decimals": 3,
    "latitude": {"column": "lat", "min": 48, "max": 49, "bins": 10},
    "longitude": {"column": "lon", "min": 11, "max": 12, "bins": 20},
}  # fmt: skip
KIND = {"name": "kind", "type": "categorical", "values": ["a", "b"]}
SCHEMA = schema_of(PLACE, KIND)
RNG = np.random.default_rng(3)
ROWS = 3_000
AREA = RNG.integers(0, 2, ROWS)  # two towns, one in the north-east
FRAME = pd.DataFrame({
    "lon": np.clip(11.2 + 0.6 * AREA + RNG.normal(0, 0.05, ROWS), 11, 12),
    "lat": np.clip(48.3 + 0.4 * AREA + RNG.normal(0, 0.05, ROWS), 48, 49),
    "kind": np.array(["a", "b"])[AREA],
})  # fmt: skip


def slow_codes(frame):
    cells = zip(frame["lat"], frame["lon"])
    return [20 * min(int((lat - 48) * 10), 9) + min(int((lon - 11) * 20), 19) for lat, lon in cells]


def forms(folder):
    """The same rows in all ways in which a table may come."""
    text = FRAME.astype(str)
    FRAME.to_csv(folder / "t.csv", index=False)
    FRAME.to_parquet(folder / "t.parquet")
    both = (text["lat"] + ", " + text["lon"]).rename("place")
    return {
        "frame": FRAME,
        "text": text,
        "objects": FRAME.astype(object),
        "csv": folder / "t.csv",
        "parquet": folder / "t.parquet",
        "one column": pd.concat([both, FRAME["kind"]], axis=1),
    }


@pytest.mark.parametrize("form", ["frame", "text", "objects", "csv", "parquet", "one column"])
def test_both_columns_give_the_code_of_a_cell_of_the_grid(form, tmp_path):
    codes = read_table(forms(tmp_path)[form], SCHEMA).columns[0]
    assert codes.tolist() == slow_codes(FRAME)


def test_a_table_has_both_columns_with_points_inside_the_cells(tmp_path):
    fitted = Synthesizer(rho=1.0, insecure_seed=1, beyond_limits=True).fit(FRAME, schema=SCHEMA)
    release = fitted.release_
    table = release.sample_table(seed=2)
    assert table.column_names == ["lat", "lon", "kind"]
    made = table.to_pandas()
    assert made["lat"].between(48, 49).all()
    assert made["lon"].between(11, 12).all()
    assert (made["lat"].round(3) == made["lat"]).all()
    # The towns are never torn apart, as columns of their own would be at times.
    near = [np.hypot(made["lat"] - 48.3 - 0.4 * k, made["lon"] - 11.2 - 0.6 * k) for k in (0, 1)]
    assert (np.minimum(*near) < 0.35).mean() > 0.97
    for name in ("s.csv", "s.parquet"):
        write_table(table, tmp_path / name, SCHEMA)
        again = read_table(tmp_path / name, SCHEMA)
        np.testing.assert_array_equal(again.columns[0], read_table(made, SCHEMA).columns[0])
    assert evaluate(FRAME, made, SCHEMA).workload.mean_l1 < 0.3


def test_files_persons_and_missing_cells(tmp_path):
    schema = schema_of({**PLACE, "missing": ["", "-"]}, KIND)
    frame = FRAME.head(6).astype(str)
    frame.loc[0, ["lat", "lon"]] = ""
    frame.loc[1, ["lat", "lon"]] = "-"
    for number in (1, 2):
        frame.to_csv(tmp_path / f"{number}.csv", index=False)
    codes = read_table(tmp_path, schema).columns[0].tolist()
    assert codes == [200, 200, *slow_codes(FRAME.head(6))[2:]] * 2
    persons = schema.model_copy(update={"person": "who"})
    kept = FewRows.of(frame.assign(who=[1, 1, 2, 2, 3, 3]), persons, 1, 2**20)
    assert read_table(kept, persons).num_rows == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lat": "50"}, "'place' has a value outside its declared range"),
        ({"lat": ""}, "'place' has a cell that cannot be read as place"),
        ({"lat": "c4n4ry"}, "'place' has a cell that cannot be read as place"),
        ({"lat": "", "lon": ""}, "'place' has empty cells"),
    ],
)
def test_points_that_are_none_are_refused(change, said):
    with pytest.raises(DataError, match=said) as caught:
        read_table(FRAME.astype(str).assign(**change), SCHEMA)
    assert "c4n4ry" not in str(caught.value)
    outside = schema_of({**PLACE, "missing": [""], "outside": "missing"}, KIND)
    assert set(read_table(FRAME.astype(str).assign(**change), outside).columns[0]) == {200}


def test_a_table_without_one_of_both_is_refused():
    with pytest.raises(DataError, match="'place' of the schema is missing"):
        read_table(FRAME.drop(columns="lat"), SCHEMA)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"latitude": {"min": 48, "max": 49, "bins": 10}}, "name both, or none"),
        ({"name": "lat"}, "names of their own"),
        ({"decimals": 0}, "must be two or more and ascend"),
        ({"latitude": {"column": "lat", "min": 49, "max": 48, "bins": 10}}, "must be two or more"),
    ],
)
def test_grids_that_are_none_are_refused(change, said):
    with pytest.raises(SchemaError, match=said):
        schema_of({**PLACE, **change}, KIND)
    with pytest.raises(SchemaError, match="'lat' is listed twice"):
        schema_of(PLACE, {**KIND, "name": "lat"})


def test_neighbours_change_nothing_but_counts():
    schema = schema_of({**PLACE, "missing": [""], "outside": "clip", "decimals": 2}, KIND)
    report = audit(schema, 1, pairs=2)
    assert report.clean
    assert report.moved


def test_labels_are_as_short_as_the_decimals():
    labels = SCHEMA.columns[0].labels_of_codes()
    assert (labels[0], labels[47]) == ("[48, 48.1) [11, 11.05)", "[48.2, 48.3) [11.35, 11.4)")
