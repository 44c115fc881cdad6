"""The release bundle: the same after a round trip, nothing private in it, damage refused."""

import json
import re
import zipfile
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adaptive_qs.errors import InputError
from adaptive_qs.machine import PhaseClock
from adaptive_qs.privacy.budget import Budget
from adaptive_qs.privacy.mechanisms import Mechanisms
from adaptive_qs.privacy.noise import InsecureSeed, SystemEntropy
from adaptive_qs.release.page import statement_page
from adaptive_qs.release.release import Release
from adaptive_qs.run.budget import PrivacyTarget
from adaptive_qs.run.tables import Tables, measure, tables_limits
from adaptive_qs.table.coded import CodedTable, MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.files import NOT_PRIVATE, PRIVATE, STAMP_KEY
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.workload import Workload

from .examples import edited, rewritten

pytestmark = pytest.mark.usefixtures("quick_tables")

SCHEMA = Schema.parse(
    {
        "version": 1,
        "columns": [
            {"name": "job", "type": "categorical", "values": ["a", "b", "c"], "missing": ["?"]},
            {"name": "age", "type": "integer", "min": 0, "max": 29, "bins": 10},
            {"name": "flag", "type": "boolean"},
            {"name": "day", "type": "date", "min": "2020-01-01", "max": "2020-01-09"},
            {"name": "only", "type": "categorical", "values": ["x"]},
        ],
    }
)
MEMBERS = [
    "statement.md", "page.html", "manifest.json", "schema.json", "workload.json", "ledger.json",
    "record.json", "reference.npy", "residuals.npy",
]  # fmt: skip
ROWS = 3_217


def private_table():
    rng = np.random.default_rng(5)
    sizes = SCHEMA.domain().sizes
    first = rng.integers(0, sizes[0], ROWS)
    columns = [first, *((first * k + rng.integers(0, n, ROWS)) % n for k, n in enumerate(sizes))]
    return CodedTable.from_codes(SCHEMA.domain(), [columns[0], *columns[2:]])


def make_release(insecure_seed=None, rho=0.5):
    domain = SCHEMA.domain()
    workload = Workload(domain, {(0, 1): 1.0, (0, 2): 1.0, (1, 2, 3): 2.0, (4,): 1.0})
    target = PrivacyTarget.of(rho=rho)
    limits = tables_limits(domain, workload, "2GB", 1)
    work = Tables(workload, limits, rho)
    entropy = SystemEntropy() if insecure_seed is None else InsecureSeed(insecure_seed)
    mechanisms = Mechanisms(Budget(rho, filtered=True), entropy)
    counter = MarginalCounter(private_table())
    return measure(counter, SCHEMA, workload, target, work, mechanisms, PhaseClock())


@pytest.fixture(scope="module")
def release():
    return make_release()


@pytest.fixture(scope="module")
def saved(release, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "r.zip"
    release.save(path)
    return path


def test_round_trip_gives_the_same_tables(release, saved, tmp_path):
    again = Release.load(saved)
    assert again.manifest == release.manifest
    assert again.schema == release.schema
    assert list(again.workload.weights.items()) == list(release.workload.weights.items())
    assert again.rounds == release.rounds
    assert again.events == release.events
    first, second = (r.sample(seed=7) for r in (release, again))
    for a, b in zip(first.columns, second.columns):
        np.testing.assert_array_equal(a, b)
    assert release.draw(100, seed=7).table().equals(again.draw(100, seed=7).table())
    again.save(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == saved.read_bytes()


def test_the_sampling_seed_decides_and_defaults_to_fresh_randomness(release):
    tables = [release.draw(50, seed=seed).table() for seed in (1, 1, None, None)]
    assert tables[0].equals(tables[1])
    assert len({str(table.to_pydict()) for table in tables}) == 3


def test_the_number_of_rows_is_the_noisy_one_or_as_asked(release):
    assert release.sample(seed=1).num_rows == release.num_rows
    assert abs(release.num_rows - ROWS) < 60  # noise std below 10 rows at this budget
    assert release.sample(1, seed=1).num_rows == 1
    # fits the schema again, with the declared types
    read_table(release.draw(200, seed=1).table(), SCHEMA)


@pytest.mark.parametrize(
    ("given", "said"),
    [((rows,), "positive integer") for rows in (0, -1, 2.0, True)]
    + [((1, seed), "seed") for seed in (-1, 1.5, True)],
)
def test_bad_row_counts_and_seeds_are_refused(release, given, said):
    with pytest.raises(InputError, match=said):
        release.sample(*given)


def test_nothing_but_released_values_is_stored(tmp_path):
    """Seeded noise, so that no released value is the exact number of rows by chance."""
    make_release(insecure_seed=918_273_645).save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        assert archive.namelist() == MEMBERS
        contents = [archive.read(name) for name in MEMBERS]
    texts = b"".join(contents[:7]).decode()
    assert f"{ROWS:,}" not in texts
    numbers = {float(text) for text in re.findall(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", texts)}
    assert len(numbers) > 50
    assert ROWS not in numbers
    assert "pickle" not in texts
    assert b"insecure seed" in b"".join(contents)
    assert b"918273645" not in b"".join(contents).replace(b",", b"")


def test_the_ledger_can_be_added_up_by_others(saved):
    with zipfile.ZipFile(saved) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        events = json.loads(archive.read("ledger.json"))["events"]
    total = Fraction(0)
    for event in events:
        if event["mechanism"] == "discrete gaussian":
            total += Fraction(event["squared_sensitivity"]) / (
                2 * Fraction(event["noise_variance"])
            )
        else:
            total += Fraction(event["epsilon"]) ** 2 / 8
    assert total <= Fraction(manifest["rho_spent"]) <= Fraction(manifest["rho"]) == Fraction(1, 2)
    assert float(total) == pytest.approx(manifest["rho_spent"], rel=1e-9)
    paid = [fact for fact in manifest["facts"] if fact["basis"] == "paid for"]
    assert sum(fact["rho"] for fact in paid) == pytest.approx(manifest["rho_spent"])
    assert all(fact["rho"] > 0 for fact in paid)
    assert (manifest["unit"], manifest["neighbours"]) == ("one row", "add or remove one row")


def test_members_tell_neither_time_nor_system(release, saved):
    with zipfile.ZipFile(saved) as archive:
        told = {(m.date_time, m.create_system, m.extra) for m in archive.infolist()}
        assert archive.read("statement.md").decode() == statement_page(release.manifest)
    assert told == {((1980, 1, 1, 0, 0, 0), 3, b"")}


def test_insecure_noise_is_stamped_everywhere_and_secure_noise_is_not(release):
    insecure = make_release(insecure_seed=1)
    assert insecure.insecure
    assert insecure.manifest.stamp == NOT_PRIVATE
    assert insecure.manifest.entropy == "insecure seed"
    assert insecure.draw(3).table().schema.metadata[STAMP_KEY].decode() == NOT_PRIVATE
    np.testing.assert_array_equal(
        insecure.sample(50, seed=1).columns[1], make_release(1).sample(50, seed=1).columns[1]
    )
    assert not release.insecure
    assert release.manifest.stamp == PRIVATE


def test_the_default_number_of_rows_stays_in_bounds(release, tmp_path, saved):
    path = edited(saved, tmp_path / "r.zip", "manifest.json", lambda m: m.update(most_rows=17))
    assert Release.load(path).num_rows == 17


def refusal(path):
    with pytest.raises(InputError) as caught:
        Release.load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def paid_fact(manifest):
    return next(fact for fact in manifest["facts"] if fact["basis"] == "paid for")


def single(ledger):
    return next(event for event in ledger["events"] if len(event["columns"]) == 1)


EDITS = {
    "budget": ("manifest.json", lambda m: m.update(rho=0.1)),
    "spent": ("manifest.json", lambda m: m.update(rho_spent=0.4)),
    "stamp": ("manifest.json", lambda m: m.update(stamp="fine")),
    "epsilon": ("manifest.json", lambda m: m.update(epsilon=m["epsilon"] / 2)),
    "mu too small for its choices": (
        "manifest.json",
        lambda m: m.update(mu=m["mu"] * (1 - 1e-5), guarantee=""),
    ),
    "fact dropped": ("manifest.json", lambda m: m["facts"].remove(paid_fact(m))),
    "fact of another kind": ("manifest.json", lambda m: paid_fact(m).update(kind="answers")),
    "fact of another column": ("manifest.json", lambda m: paid_fact(m).update(columns=["age"])),
    "charge for another column": ("ledger.json", lambda m: single(m).update(columns=["only"])),
    "charge for an unknown column": ("ledger.json", lambda m: single(m).update(columns=["nobody"])),
    "charge for another purpose": ("ledger.json", lambda m: single(m).update(purpose="queries")),
    "fact cheaper": ("manifest.json", lambda m: paid_fact(m).update(rho_units=1)),
    "version 0": ("manifest.json", lambda m: m.update(format_version=0)),
    "fingerprint": ("manifest.json", lambda m: m.update(schema_fingerprint="0")),
    "event dropped": ("ledger.json", lambda m: m["events"].pop()),
    "bad ratio": ("ledger.json", lambda m: m["events"][0].update(noise_variance="1/0")),
    "mechanism": ("ledger.json", lambda m: m["events"][0].update(mechanism="magic")),
    "workload": ("workload.json", lambda m: m["parts"][0].update(attributes=[["nobody"]])),
    "residual": ("record.json", lambda m: m["residuals"][1].update(attributes=["nobody"])),
    "uncharged": ("record.json", lambda m: m["residuals"][-1]["attributes"].append("only")),
    "residual twice": ("record.json", lambda m: m["residuals"].append(m["residuals"][-1])),
    "precision": ("record.json", lambda m: m["residuals"][0].update(precision=-1)),
    "no total": ("record.json", lambda m: m["residuals"].pop(0)),
    "round": ("record.json", lambda m: m["rounds"][0].update(clique=["nobody"])),
    "schema": ("schema.json", lambda m: m["columns"].pop()),
    "other unconnected columns": ("manifest.json", lambda m: m.update(unconnected=["day"])),
}


@pytest.mark.parametrize("case", EDITS)
def test_bundles_that_contradict_themselves_are_refused(case, saved, tmp_path):
    refusal(edited(saved, tmp_path / "r.zip", *EDITS[case]))


@pytest.mark.parametrize(("found", "said"), [(4, "a newer version"), (2, "an earlier version")])
def test_other_versions_say_so(found, said, saved, tmp_path):
    change = ("manifest.json", lambda m: m.update(format_version=found))
    assert said in refusal(edited(saved, tmp_path / "r.zip", *change))


@pytest.mark.parametrize("name", MEMBERS[2:])
def test_missing_members_are_refused(name, saved, tmp_path):
    refusal(rewritten(saved, tmp_path / "r.zip", {name: None}))


def test_compressed_arrays_are_refused_before_they_are_unpacked(saved, tmp_path):
    refusal(rewritten(saved, tmp_path / "r.zip", {}, zipfile.ZIP_DEFLATED))
    rewritten(saved, tmp_path / "same.zip", {})
    Release.load(tmp_path / "same.zip")


@pytest.mark.parametrize("bad", [np.zeros(3, dtype=object), np.zeros(3), np.full(500, np.nan)])
def test_other_arrays_are_refused(bad, saved, tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, bad, allow_pickle=True)
    content = (tmp_path / "a.npy").read_bytes()
    refusal(rewritten(saved, tmp_path / "r.zip", {"residuals.npy": content}))


def test_other_files_are_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "none.zip")
    (tmp_path / "t.zip").write_text("a,b\n")
    refusal(tmp_path / "t.zip")
    refusal(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(data, release, saved, tmp_path_factory):
    content = bytearray(saved.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("damaged") / "r.zip"
    path.write_bytes(content)
    try:
        again = Release.load(path)
    except InputError:
        refusal(path)
    else:
        assert again.manifest == release.manifest
        for clique, estimate in release.estimates.items():
            np.testing.assert_array_equal(again.estimates[clique].values, estimate.values)


def test_saving_to_a_bad_path_is_refused(release, tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        release.save(tmp_path / "none" / "r.zip")


def test_a_fault_in_the_page_does_not_cost_the_release(release, tmp_path, monkeypatch):
    def broken(_):
        raise ZeroDivisionError

    monkeypatch.setattr("adaptive_qs.release.page.release_page", broken)
    release.save(tmp_path / "r.zip")
    with zipfile.ZipFile(tmp_path / "r.zip") as archive:
        assert archive.namelist() == MEMBERS
        assert b"could not be made" in archive.read("page.html")
    assert Release.load(tmp_path / "r.zip").draw(50, seed=1).table().num_rows == 50
