"""Importing this does one small job of each verb, so that forked children start at once."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory


def _warm() -> None:
    from adaptive_qs.cli.entry import main

    with (
        TemporaryDirectory() as name,
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        folder = Path(name)
        data, schema, ledger = (str(folder / part) for part in ("t.csv", "s.json", "ledger"))
        Path(data).write_text("a,b,c\n" + "x,3,false\ny,4,true\n" * 50)
        Path(schema).write_text(
            '{"version": 1, "columns": ['
            '{"name": "a", "type": "categorical", "values": ["x", "y"]},'
            '{"name": "b", "type": "integer", "min": 0, "max": 9},'
            '{"name": "c", "type": "boolean"}]}'
        )
        main(["ledger", "create", "--ledger", ledger, "--rho", "9"])
        common = [data, "--schema", schema, "--rho", "1", "--ledger", ledger, "--out"]
        main(["synthesize", *common, str(folder / "o.csv"), "--release", str(folder / "r.zip")])
        main(["answer", *common, str(folder / "o.parquet")])
        main(["evaluate", data, data, "--schema", schema])


_warm()
