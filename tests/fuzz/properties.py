"""What must hold whatever is read: a refusal of the documented kind, or a sound result.

Each property is a strategy and a check, so that the suite can run a few hundred examples of it and
`long.run` as many as there is time for.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from adaptive_qs.errors import AdaptiveQsError, InputError, ResourceExceeded
from adaptive_qs.table.coded import CodedTable
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.propose import check_schema, propose
from adaptive_qs.table.schema import Schema
from adaptive_qs.workload.file import WorkloadFile, resolve_queries, resolve_workload

from .commands import argument_lists, check_command
from .documents import OTHERS, SCHEMAS, WORKLOADS, json_files
from .frames import frames
from .releases import check_release, damaged_releases
from .tables import CANARY, CANARY_NUMBER, SCHEMA, csv_files, edited

MOST_LABELS = 10_000


@dataclass(frozen=True)
class Property:
    """A strategy for inputs, and the check of one input."""

    strategy: st.SearchStrategy[Any]
    check: Callable[[Any], None]

    def run(self, config: settings, number: int | None = None) -> int:
        """Check as many examples as the settings say, with this seed if there is one.

        Returns:
            Number of examples checked.

        Raises:
            AssertionError, or what the program raised: hypothesis has shrunk the example, which is
                in the notes of the error.
        """
        checked = 0

        def body(example: Any) -> None:
            nonlocal checked
            checked += 1
            self.check(example)

        test = config(given(self.strategy)(body))
        (test if number is None else seed(number)(test))()
        return checked


def refused(action: Callable[[], Any], private: bool = True) -> Any:
    """The result, or None where it was refused as documented, in one line without a cell."""
    try:
        return action()
    except (InputError, ResourceExceeded) as error:
        kept: AdaptiveQsError = error
    message = str(kept)
    assert message
    assert "\n" not in message
    assert not getattr(kept, "__notes__", None)
    if private:
        assert kept.__cause__ is None
        assert kept.__context__ is None
        assert CANARY not in repr(kept)
        assert CANARY_NUMBER not in repr(kept)
    return None


def check_codes(table: CodedTable, schema: Schema) -> None:
    """Every code lies inside its attribute, and the columns are equally long."""
    for codes, size in zip(table.columns, schema.domain().sizes, strict=True):
        assert codes.shape == (table.num_rows,)
        assert codes.dtype.kind == "u"
        assert 0 <= int(codes.min()) <= int(codes.max()) < size


def check_csv(example: tuple[bytes, int | None]) -> None:
    """A CSV file is read as codes inside the domain, or refused; a valid one is read whole."""
    content, rows = example
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(content)
        table = refused(lambda: read_table(path, SCHEMA))
        check_proposal(path)
    if table is not None:
        check_codes(table, SCHEMA)
    if rows is not None:
        assert table is not None
        assert table.num_rows == rows


def check_proposal(path: Path) -> None:
    """A schema proposed from a table fits that table."""
    proposed = refused(lambda: propose(path))
    if proposed is not None:
        check_codes(read_table(path, proposed), proposed)


def check_frame(frame: Any) -> None:
    """A typed table is refused or read, alike in memory and from Parquet; so is its proposal."""
    table = refused(lambda: read_table(frame, SCHEMA))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        pq.write_table(frame, path)
        stored = refused(lambda: read_table(path, SCHEMA))
        check_proposal(path)
    assert (table is None) == (stored is None)
    if table is not None:
        check_codes(table, SCHEMA)
        assert all(map(np.array_equal, table.columns, stored.columns))


def _parquet(frame: Any) -> st.SearchStrategy[bytes]:
    buffer = io.BytesIO()
    pq.write_table(frame, buffer)
    return edited(buffer.getvalue())


def check_parquet(content: bytes) -> None:
    """A damaged Parquet file is refused, or read as codes inside the domain."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        path.write_bytes(content)
        table = refused(lambda: read_table(path, SCHEMA))
        refused(lambda: propose(path))
    if table is not None:
        check_codes(table, SCHEMA)


def check_schema_file(content: bytes) -> None:
    """A schema is refused, or survives being written and read again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.json"
        path.write_bytes(content)
        schema = refused(lambda: Schema.load(path), private=False)
    if schema is not None:
        again = Schema.parse(json.loads(schema.to_json()))
        assert again == schema
        assert again.fingerprint == schema.fingerprint
        assert again.domain() == schema.domain()
        assert all("\n" not in advice for advice in check_schema(schema))
        for column in schema.columns:
            if column.size <= MOST_LABELS:
                assert len(set(column.labels_of_codes())) == column.size


def check_workload_file(example: tuple[bytes, bytes]) -> None:
    """A workload is refused, or survives being written and read again."""
    content, matrix = example
    domain = SCHEMA.domain()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.json"
        path.write_bytes(content)
        (Path(folder) / "m.csv").write_bytes(matrix)
        (Path(folder) / "m.npy").write_bytes(matrix)
        refused(lambda: resolve_queries(path, domain), private=False)
        workload = refused(lambda: resolve_workload(path, domain), private=False)
    if workload is not None:
        written = json.loads(WorkloadFile.of(workload).model_dump_json())
        again = WorkloadFile.parse(written).workload(domain)
        assert again.weights == workload.weights


PROPERTIES = {
    "csv": Property(csv_files(), check_csv),
    "frames": Property(frames(), check_frame),
    "parquet": Property(frames().flatmap(_parquet), check_parquet),
    "schema": Property(json_files([*SCHEMAS, *OTHERS]), check_schema_file),
    "workload": Property(
        st.tuples(json_files(WORKLOADS), edited(b"1,0\n0,1\n1,1\n", most=2)), check_workload_file
    ),
    "commands": Property(argument_lists(), check_command),
    "releases": Property(damaged_releases(), check_release),
}
"""By what is fuzzed."""
