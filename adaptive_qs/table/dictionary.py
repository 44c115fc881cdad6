"""Data dictionaries: the codes and ranges of columns as their publisher describes them."""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from adaptive_qs.errors import InputError, SchemaError
from adaptive_qs.jsonfile import as_object, read_json
from adaptive_qs.table.cells import MixedCells, as_text, normalise
from adaptive_qs.table.files import atomic_writer
from adaptive_qs.table.profile import NUMERIC_MARKERS, Profile
from adaptive_qs.table.read import Cells, open_source
from adaptive_qs.table.spellings import in_natural_order
from adaptive_qs.table.text import Dialect, read_integer, read_number

MOST_TABLE_BYTES = 2**24
"""Maximum size of the CSV file of a rule's table."""
_NO_VALUE = re.compile(r"n/?a\b|not (applicable|available)|missing|no answer|refused|blank", re.I)


@dataclass
class Entry:
    """What a dictionary says of a column: labels of codes, and the ends of a range of numbers."""

    description: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)

    def note(self, code: str, label: Any) -> None:
        """Add a code with its label, or an end of the range ("min" or "max")."""
        if code in ("min", "max") and (number := read_number(str(label))) is not None:
            self.ends[code] = number
        elif code:
            self.labels[code] = str(label)

    @property
    def markers(self) -> list[str]:
        """Codes that mean that there is no value."""
        return [
            c for c, said in self.labels.items() if c in NUMERIC_MARKERS or _NO_VALUE.match(said)
        ]

    def describe(self, profile: Profile, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a proposed column as the dictionary has it; None if it does not fit the cells."""
        about = {"description": self.description} if self.description else {}
        others = [marker for marker in profile.markers if marker not in self.labels]
        own = dict.fromkeys(self.markers)
        missing = {"missing": [*own, *others]} if own or others else {}
        codes = [code for code in self.labels if code not in own]
        cells = profile.texts - {*own, *profile.markers}
        if {*self.ends} == {"min", "max"}:
            numbers = [*self.ends.values(), *(n for n in map(read_number, codes) if n is not None)]
            ends = min(numbers), max(numbers)
            if "ordered" in content or not ends[0] <= profile.low <= profile.high <= ends[1]:
                return None
            return {**content, **about, **missing, **_with_ends(content, *ends)}
        if not codes or not cells <= {*codes}:
            return None
        order = in_natural_order([self.labels[code] for code in codes])
        if order is not None and len({*self.labels.values()}) == len(self.labels):
            codes.sort(key=lambda code: order.index(self.labels[code]))
        whole = all(str(read_integer(code)) == code for code in codes)
        values = [int(code) if whole else code for code in codes]
        ordered = {"ordered": True} if order is not None else {}
        return {"type": "categorical", "values": values, **ordered, **about, **missing}


def _with_ends(content: Mapping[str, Any], low: float, high: float) -> dict[str, Any]:
    """Return the keys of a schema for a range; the proposed bins stay, with others around them."""
    if "edges" in content:
        return {"edges": sorted({low, *content["edges"], high})}
    first, last = int(low), int(high)
    if "bin_starts" not in content and last - first < 2 * (content["max"] - content["min"] + 5):
        return {"min": first, "max": last}
    starts = content.get("bin_starts") or range(content["min"], content["max"] + 1)
    inner = {start for start in (*starts, content["max"] + 1) if first < start <= last}
    return {"min": first, "max": last, "bin_starts": sorted({first, *inner})}


def read_dictionary(path: Path) -> dict[str, Entry]:
    """Return the entries of a data dictionary, by column.

    JSON has for each column a "description" and "values" (labels by codes, "min" and "max"). CSV
    and Excel have a line for each code, with columns named name, code and label. Raise InputError
    if the file cannot be read or is no dictionary.
    """
    found: dict[str, Entry] = {}
    if path.suffix.lower() == ".json":
        for name, said in as_object(read_json(path, InputError)).items():
            entry = found.setdefault(name, Entry(str(as_object(said).get("description", ""))))
            for code, label in as_object(as_object(said).get("values")).items():
                entry.note(code.strip(), label)
        return found
    with open_source(path) as source:
        other = source.other_delimiter
    with open_source(path, Dialect(other)) as source:
        named = {name.strip().lower(): name for name in source.names}
        if not {"name", "code", "label"} <= {*named}:
            raise InputError(
                f"{path} is not a data dictionary. Use JSON, or CSV or Excel with columns named "
                "name, code and label."
            )
        for chunk in source.read([named[key] for key in ("name", "code", "label")]):
            for name, code, label in zip(*map(_texts, chunk.columns)):
                found.setdefault(name, Entry()).note(code, label)
    return found


def _texts(cells: Cells) -> list[str]:
    """Return cells of any types as text, "" for none."""
    mixed = MixedCells.join([cells])
    parts = [normalise(part) for part in mixed.parts]
    texts = [text for part in parts if part is not None for text in as_text(part).to_pylist()]
    return [(text or "") for text in map([*texts, ""].__getitem__, mixed.indices.tolist())]


def read_pairs(folder: Path, name: str) -> list[list[str]]:
    """Return the rows of the CSV file that holds the table of a rule, without its header.

    The file must lie in the folder of the schema, since a release publishes the table. Raise
    SchemaError if it does not, cannot be read, or is too large.
    """
    path = folder / name
    try:
        if path.name != name or not path.is_file() or path.stat().st_size > MOST_TABLE_BYTES:
            raise ValueError
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [line for line in csv.reader(file) if line][1:]
    except (OSError, ValueError, csv.Error):
        said = "cannot be read as the table of a rule: write CSV, in a file next to the schema"
        raise SchemaError(f"{path}: {said}") from None


def write_pairs(path: Path, names: Iterable[str], table: Iterable[Iterable[str]]) -> None:
    """Write the file that :func:`read_pairs` reads; raise InputError if that is not possible."""
    text = StringIO()
    csv.writer(text).writerows([names, *table])
    with atomic_writer(path) as file:
        file.write(text.getvalue().encode())
