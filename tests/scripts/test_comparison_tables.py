"""The tables of the comparison: made-up rows in the format of the real ones, and their schemas."""

import gzip

import pytest

from adaptive_qs.errors import DataError
from adaptive_qs.table.schema import Schema
from scripts.compare.tables import HERE, REAL, fetch_kdd_census, load_real

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
KDD_NAMES = fetch_kdd_census.NAMES


@pytest.fixture
def data(tmp_path):
    """Tiny made-up tables in the format of the real ones."""
    kdd = "\n".join([",".join(KDD_NAMES), *KDD_ROWS]) + "\n"
    for path, text in {
        "adult/domain.json": '{"age": 85, "sex": 2}',
        "adult/adult.csv": "age,sex\n0,1\n84,0\n",
        "br2000/domain.json": '{"c0": 2, "c1": 3}',
        "br2000/br2000.csv": "c0,c1\n0,1\n1,2\n",
        "ma2019/ma2019.csv.gz": MA2019_ROWS,
        "kdd-census/census-income.csv.gz": kdd,
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        content = gzip.compress(text.encode()) if path.endswith("gz") else text.encode()
        (tmp_path / path).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("name", REAL)
def test_rows_in_the_format_of_a_table_are_encoded_and_a_missing_one_is_named(name, data):
    assert load_real(name, data).num_rows == 2
    (data / name / REAL[name][0]).unlink()
    with pytest.raises(DataError, match=r"not found: (take|run) ") as refused:
        load_real(name, data)
    assert "\n" not in str(refused.value)
    assert str(data / name) in str(refused.value)


@pytest.mark.parametrize("path", sorted(HERE.glob("*.schema.json")), ids=lambda path: path.name)
def test_the_committed_schemas_are_complete_and_written_as_the_program_writes_them(path):
    schema = Schema.load(path)
    assert not schema.private_columns
    assert path.read_text() == schema.to_json()
