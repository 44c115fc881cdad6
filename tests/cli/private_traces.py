"""A private table, and a search for all that it would leave behind if any of it leaked.

Exact counts are sought where no chance can put them. Noise comes from a seed and budgets are tiny,
so that noisy numbers are the same on every run and far from the exact ones; what is left to chance
are keys, hashes, checksums and times. A decimal number counts only where it stands alone, which it
cannot inside a hexadecimal text or the fraction of a second. A float64 counts where four of its
bytes are not zero: random bytes behind four zeros are the salts of write-ahead logs, and one of
some twenty logs matches one of at most thirteen counts with a probability below 20 * 13 * 2**-32 <
1e-7. An int64 of a count has but two or three such bytes, so integers are compared as numbers
(:func:`kept_answers`), and as bytes only in whole marginals, of five cells and 20 bytes at least.
"""

import hashlib
import io
import re
import sqlite3
import struct
import zipfile
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from adaptive_qs.ledger.entries import COUNTS, from_bytes
from adaptive_qs.table.coded import MarginalCounter
from adaptive_qs.table.encode import read_table
from adaptive_qs.table.schema import Schema

CANARY = "CANARY-7f3a"
CANARY_NUMBER = 830475619283746501
"""Cells of one row, and of a column that is ignored."""
JOBS = {"a": 61_331, "b": 23_417, "c": 17_209, "?": 14_159, CANARY: 1}
LEAST = 10_000
"""Counts from here on are distinctive."""

_AGE = {"name": "age", "type": "integer", "missing": ["?"]}
_JOB = {"name": "job", "type": "categorical", "catch_all": "other", "missing": ["?"]}
SCHEMAS = {
    name: {"version": 1, "columns": columns, "ignore": ["note"]}
    for name, columns in {
        "declared": [
            {**_JOB, "values": ["a", "b", "c"]},
            {**_AGE, "min": 0, "max": 99, "bins": 4, "outside": "clip"},
        ],
        "learnt": [{**_JOB, "private_values": 6}, {**_AGE, "private_bins": 4}],
    }.items()
}


def write_private_table(path):
    """As CSV: jobs, ages that depend on them, and a note in each row."""
    rng = np.random.default_rng(5)
    job = rng.permutation(np.repeat(list(JOBS), list(JOBS.values())))
    age = (rng.gamma(3, 11, len(job)) + 9 * (job == "b")).astype(int).clip(0, 99).astype("U20")
    age[rng.random(len(job)) < 0.19] = "?"
    age[job == CANARY] = str(CANARY_NUMBER)
    note = np.full(len(job), CANARY)
    pacsv.write_csv(pa.table({"job": job, "age": age, "note": note}), path)


class Secrets:
    """Forms of the cells and exact counts of a table, and how to find them."""

    def __init__(self, table, *schemas):
        self.scalars: set[int] = set()
        self._forms = [CANARY.encode(), str(CANARY_NUMBER).encode()]
        self._forms += [struct.pack("<q", CANARY_NUMBER), struct.pack("<d", CANARY_NUMBER)]
        for schema in schemas:
            self._add(MarginalCounter(read_table(table, schema)))
        texts = {text for n in self.scalars for text in (f"{n}", f"{n:,}", f"{n:_}")}
        alone = rf"(?<![0-9A-Za-z._])(?:{'|'.join(texts) or '(?!)'})(?:\.0+)?(?!\.?[0-9A-Za-z_])"
        self._decimal = re.compile(alone.encode())
        reals = [struct.pack("<d", n) for n in self.scalars]
        self._forms += [real for real in reals if sum(map(bool, real)) >= 4]
        self._clean: set[bytes] = set()

    def absent(self, where, content):
        """Fail where a file or text, or what is packed inside, holds a trace."""
        content = content.encode() if isinstance(content, str) else content
        digest = hashlib.sha256(content).digest()
        if digest in self._clean:
            return
        for form in self._forms:
            assert form not in content, (where, form)
        found = self._decimal.search(content)
        assert not found, (where, found)
        if content.startswith(b"PK\3\4"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for name in archive.namelist():
                    self.absent(f"{where}: {name}", archive.read(name))
        if content.startswith(b"PAR1") and content.endswith(b"PAR1"):
            table = pq.read_table(io.BytesIO(content))
            self.absent(f"{where}: metadata", str(table.schema.metadata))
            for name, column in zip(table.column_names, table.columns):
                number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
                cells = column.to_numpy() if number else str(column.unique().to_pylist()).encode()
                self.absent(f"{where}: {name}", bytes(cells))
        self._clean.add(digest)

    def absent_in(self, *folders):
        """The same of all files in these folders, names included."""
        for folder in folders:
            for path in folder.rglob("*"):
                self.absent(path, path.name)
                if path.is_file():
                    self.absent(path, path.read_bytes())

    def _add(self, counter):
        names = range(len(counter.domain))
        self.scalars.add(int(counter.count(())))
        for clique in (c for k in (1, 2) for c in combinations(names, k)):
            exact = scaled = counter.count(clique)
            self.scalars |= {int(n) for n in exact.ravel() if n >= LEAST}
            for axis, n in enumerate(exact.shape):
                scaled = n * scaled - scaled.sum(axis=axis, keepdims=True)
            for cells in (exact, scaled):
                self._forms += [cells.astype(kind).tobytes() for kind in ("<i8", "<f8")]
            self._forms.append(exact.astype("<u4").tobytes())


def kept_answers(ledger):
    """All noisy integers that a ledger keeps for its open runs."""
    connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    query = "SELECT kind, data FROM outputs"
    kept = [from_bytes(kind, data) for kind, data in connection.execute(query) if kind == COUNTS]
    connection.close()
    return {int(n) for output in kept for n in output}


def declared(name="declared"):
    """One of the schemas."""
    return Schema.parse(SCHEMAS[name])
