"""Small tables, schemas and workloads that stand for much are refused early, in one line."""

import json
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.small_inputs import SPACE, write_book

SCHEMA = {"version": 1, "columns": [
    {"name": "a", "type": "categorical", "values": ["x"], "catch_all": "other"},
]}  # fmt: skip
MEGABYTES = 1024

RUN = """
import sys
from adaptive_qs.cli.entry import main
from adaptive_qs.machine import peak_memory_mb
code = main(sys.argv[1:])
print("peak", peak_memory_mb.__wrapped__())
sys.exit(code)
"""


def refusal(folder, source, schema=SCHEMA, workload=None):
    """The line by which the command refuses it, within the ceiling of memory."""
    (folder / "s.json").write_text(json.dumps(schema))
    words = ["synthesize", str(source), "--schema", str(folder / "s.json"), "--rho", "1"]
    words += ["--out", str(folder / "o.csv"), "--max-memory", "1GB"]
    if workload is not None:
        (folder / "w.json").write_text(json.dumps(workload))
        words += ["--workload", str(folder / "w.json")]
    run = subprocess.run(
        [sys.executable, "-c", RUN, *words], capture_output=True, text=True, timeout=600
    )
    assert run.returncode in (2, 4), run.stderr
    assert float(run.stdout.split("peak")[1]) < MEGABYTES
    assert "internal error" not in run.stderr
    return run.stderr.splitlines()[-1]


def book(path, rows="", part="xl/sharedStrings.xml", texts=None):
    """A workbook whose rows behind the header are this XML, with a part of shared texts."""
    write_book(path, [rows], part, [] if texts is None else [texts])
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("<row>" + "<c/>" * 2_000_000 + "</row>", "a row of more than 4 MiB"),
        ("<row>" + "<c/>" * 20_000 + "</row>", "no rows"),
        ('<row><c t="inlineStr"><is><t>' + "A" * 10**7 + "</t></is></c></row>", "4 MiB"),
    ],
    ids=["cells", "few cells", "text"],
)
def test_rows_of_a_sheet_are_limited(tmp_path, rows, said):
    assert said in refusal(tmp_path, book(tmp_path / "t.xlsx", rows))


@pytest.mark.slow
def test_entities_are_refused(tmp_path):
    texts = f'<!DOCTYPE sst [<!ENTITY e "{"B" * 1000}">]><sst {SPACE}><si><t>&e;</t></si></sst>'
    row = '<row><c t="s"><v>0</v></c></row>'
    assert "cannot be read" in refusal(tmp_path, book(tmp_path / "t.xlsx", row, texts=texts))


@pytest.mark.parametrize("folder", ["worksheets", "pivotCache"])
@pytest.mark.slow
def test_texts_count_in_every_folder(tmp_path, folder):
    texts = "".join(f"<si><t>{k * 7919 % 10**7}</t></si>" for k in range(8_000_000))
    path = book(tmp_path / "t.xlsx", "", f"xl/{folder}/t.xml", f"<sst {SPACE}>{texts}</sst>")
    assert "its texts need more memory" in refusal(tmp_path, path)


def understated(path):
    """The file, with metadata that say 1,000 bytes where a part of a column has millions."""

    def written(number, length):
        sevens = [number << 1 >> 7 * k & 127 for k in range(length)]
        return bytes([*(part | 128 for part in sevens[:-1]), sevens[-1]])

    data, found = path.read_bytes(), pq.read_metadata(path).row_group(0)
    for size in {found.column(0).total_uncompressed_size, found.total_byte_size}:
        length = -(-(2 * size).bit_length() // 7)
        assert written(size, length) in data
        data = data.replace(written(size, length), written(1_000, length))
    path.write_bytes(data)
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 1_000


@pytest.mark.slow
@pytest.mark.parametrize("change", [lambda path: None, understated], ids=["honest", "understated"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_of_parquet_is_claimed(tmp_path, change, version):
    table, path = pa.table({"a": ["x", "A" * 300_000_000]}), tmp_path / "t.parquet"
    pq.write_table(
        table, path, compression="zstd", use_dictionary=False, write_statistics=False,
        data_page_version=version,
    )  # fmt: skip
    change(path)
    assert "its row groups need more memory" in refusal(tmp_path, path)


@pytest.mark.slow
def test_texts_as_differences_are_refused(tmp_path):
    table, path = pa.table({"a": ["x" * 10**6] * 100}), tmp_path / "t.parquet"
    pq.write_table(table, path, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    assert "is not a readable Parquet file" in refusal(tmp_path, path)


@pytest.mark.slow
def test_elements_of_a_workbook_are_limited(tmp_path):
    path, styles = book(tmp_path / "t.xlsx"), "<xf/>" * 1_500_000 + "</cellXfs>"
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content.replace("</cellXfs>", styles))
    assert "is an Excel file that cannot be read" in refusal(tmp_path, path)


@pytest.mark.slow
def test_bins_that_are_numbers_are_claimed(tmp_path):
    columns = [
        {"name": f"c{k}", "type": "numeric", "min": 0, "max": 1, "bins": 2**24} for k in range(3)
    ]
    (tmp_path / "t.csv").write_text("c0,c1,c2\n0.5,0.5,0.5\n")
    said = refusal(tmp_path, tmp_path / "t.csv", {"version": 1, "columns": columns})
    assert "50,331,648 bins" in said


@pytest.mark.slow
def test_subsets_of_a_marginal_are_counted_before_they_are_formed(tmp_path):
    names = [f"c{k}" for k in range(25)]
    columns = [{"name": name, "type": "categorical", "values": ["x"]} for name in names]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("x" * 25) + "\n")
    schema, asked = (
        {"version": 1, "columns": columns},
        {"version": 1, "parts": [{"attributes": [names]}]},
    )
    said = refusal(tmp_path, tmp_path / "t.csv", schema, asked)
    assert "a set of 25 attributes has more than 16,384 subsets" in said
