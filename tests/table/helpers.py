"""Schemas and tables of one column, for the tests of this folder."""

from __future__ import annotations

import numpy as np

from adaptive_qs.table.encode import decode, read_table
from adaptive_qs.table.engines import EngineOptions
from adaptive_qs.table.engines.local import Spool
from adaptive_qs.table.propose import propose
from adaptive_qs.table.schema import Schema


def schema_of(columns):
    """The schema with these columns, without their names, by name."""
    return Schema.parse({"version": 1, "columns": [{"name": n, **c} for n, c in columns.items()]})


def left_out(schema):
    """The reasons why columns are not measured, by name."""
    return {column.name: "; ".join(column.why) for column in schema.generated}


def digest_of(source):
    """By what a ledger recognises a table."""
    spool = Spool(source, Schema.parse({"a": 1}), EngineOptions(), keeps=False, sums=True)
    with spool.open() as opened:
        for _ in opened.read(opened.names):
            pass
    return spool.digest


def proposed(path):
    """The proposed column of a file, the codes of its cells, and what these decode to."""
    schema = propose(path)
    table = read_table(path, schema)
    made = decode(table, schema, np.random.default_rng(0))[0].to_pandas()
    return schema.columns[0], np.asarray(table.columns[0]), made
