"""Where the promise of a synthetic table is found, and what of it holds."""

import pandas as pd
import pytest

from adaptive_qs import Schema, Synthesizer
from adaptive_qs.data.review import TAKEN_FROM_DATA
from adaptive_qs.errors import InputError
from adaptive_qs.evaluation.attack.game import Promise
from adaptive_qs.evaluation.promised import find_promise
from adaptive_qs.release.beside import manifest_path, write_manifest
from adaptive_qs.release.bundle import Bundle

FRAME = pd.DataFrame({"a": ["x", "y", "y"] * 200, "b": [1, 2, 3] * 200})


def schema_of(description="", **column):
    a = {"name": "a", "type": "categorical", **column}
    b = {"name": "b", "type": "integer", "min": 0, "max": 4}
    return Schema.parse({"version": 1, "description": description, "columns": [a, b]})


SCHEMA = schema_of(values=["x", "y"])
OTHER = schema_of(values=["x", "y", "z"])


def saved(folder, schema=SCHEMA, **options):
    """A small release."""
    path = folder / "r.zip"
    model = Synthesizer(epsilon=1.0, delta=1e-6, workload=1, **options)
    model.fit(FRAME, schema=schema).save(path)
    return path


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("declared"))


def test_the_promise_of_a_bundle_is_what_was_spent(release, tmp_path):
    manifest = Bundle.load(release).manifest
    found = find_promise(release, tmp_path / "o.csv", SCHEMA)
    assert found.promise == Promise(manifest.rho_spent, 1.0, 1e-6, "r.zip")
    assert isinstance(found.release, Bundle)
    assert found.limitation is None


def test_the_statement_beside_a_table_promises_the_same(release, tmp_path):
    table = tmp_path / "o.csv"
    manifest = Bundle.load(release).manifest
    write_manifest(manifest, table, sampling={"seed": 1, "rows": 5}, charges=[])
    found = find_promise(None, table, SCHEMA)
    assert found.release == manifest
    assert found.promise == Promise(manifest.rho_spent, 1.0, 1e-6, "o.csv.manifest.json")


def test_a_release_goes_before_the_statement_beside_the_table(release, tmp_path):
    manifest_path(tmp_path / "o.csv").write_text("no json")
    assert find_promise(release, tmp_path / "o.csv", SCHEMA).promise is not None
    assert find_promise(None, tmp_path / "o.csv", SCHEMA).promise is None


def test_rho_is_not_the_whole_promise_where_values_were_discovered(tmp_path):
    path = saved(tmp_path, schema_of(private_values=3, catch_all="other"))
    assert Bundle.load(path).manifest.delta_spent > 0
    promise = find_promise(path, tmp_path / "o.csv", Bundle.load(path).schema).promise
    assert (promise.rho, promise.epsilon, promise.delta) == (None, 1.0, 1e-6)


def test_what_is_no_release_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(InputError, match=r"t\.csv: is not a readable release"):
        find_promise(tmp_path / "t.csv", tmp_path / "o.csv", SCHEMA)


def test_a_release_of_another_schema_is_not_that_of_the_table(release, tmp_path):
    table = tmp_path / "o.csv"
    with pytest.raises(InputError, match=r"r\.zip: was made with another schema") as caught:
        find_promise(release, table, OTHER)
    assert "\n" not in str(caught.value)
    write_manifest(Bundle.load(release).manifest, table, sampling={}, charges=[])
    found = find_promise(None, table, OTHER)
    assert (found.release, found.promise) == (None, None)
    assert "o.csv.manifest.json is of a release with another schema" in found.limitation


def test_nothing_is_promised_about_what_a_schema_taken_from_the_data_tells(tmp_path):
    schema = schema_of(TAKEN_FROM_DATA, values=["x", "y"])
    with pytest.warns(UserWarning, match="taken from the data"):
        path = saved(tmp_path, schema, unreviewed_schema=True)
    found = find_promise(path, tmp_path / "o.csv", schema)
    assert found.promise is None
    assert found.limitation.startswith("no bound: r.zip says that the schema was taken from")
    assert isinstance(found.release, Bundle)
