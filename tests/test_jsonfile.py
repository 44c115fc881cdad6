import subprocess
import sys

import pytest

from adaptive_qs.errors import SchemaError, WorkloadError
from adaptive_qs.jsonfile import read_json
from adaptive_qs.table.schema import Schema

BAD = {
    "no file": (None, "no such file"),
    "bytes": (b"\xff\xfe", "not UTF-8"),
    "text": (b'{"a":\n 1,}', "not valid JSON (line 2"),
    "twice": (b'{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' occurs twice"),
    "nan": (b'{"a": NaN}', "NaN is not a number"),
    "infinity": (b"[-Infinity]", "-Infinity is not a number"),
    "alone": (b"Infinity", "x.json: Infinity is not a number that JSON can hold. Use a finite"),
    "nested": (b'{"a": {"b": [[NaN]], "c": 1}}', "x.json: NaN is not a number"),
    "too large": (b'{"a": 1e999}', "x.json: 1e999 is not a number"),
    "long": (b"[1e999" + b"0" * 5000 + b"]", "x.json: 1e99900000000000000000000000000"),
    "half a character": (b'{"a": "\\ud800"}', "half of a surrogate pair"),
    "digits": (b'{"a": -' + b"1" * 5000 + b"}", "a number of 5,001 digits. Use at most 1,000"),
    "depth": (b"[" * 200_000, "nested too deeply"),
}


@pytest.mark.parametrize("refusal", [SchemaError, WorkloadError])
@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line_that_names_them(case, refusal, tmp_path):
    content, hint = BAD[case]
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(refusal) as caught:
        read_json(path, refusal)
    assert str(caught.value).startswith(f"{path}: ")
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [1, 2.5, null]}')
    assert read_json(path, SchemaError) == {"a": [1, 2.5, None]}


LONG = {
    "number": ({"type": "integer", "min": 0, "max": 10**900}, "not 1000"),
    "key": ({"type": "boolean", "k" * 5000: 1}, "kkk... (5,000 characters): is not a known key"),
    "type": (
        {"type": "t" * 5000},
        "ttt... (5,000 characters) is unknown: use one of 'part', 'categorical'",
    ),
}


@pytest.mark.parametrize("case", LONG)
def test_what_is_long_is_quoted_in_part(case):
    column, hint = LONG[case]
    with pytest.raises(SchemaError) as caught:
        Schema.parse({"version": 1, "columns": [{"name": "a", **column}]})
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 250


def test_the_import_is_light():
    code = "import sys, adaptive_qs.jsonfile\nassert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
