"""Make ma2019.schema.json from the public data dictionary; no row is read.

python -m scripts.compare.tables.ma2019_schema data_dictionary.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from adaptive_qs.table.schema import Schema

TARGET = Path(__file__).with_name("ma2019.schema.json")
STATE = "25-"
"""Census code of Massachusetts: PUMAs of other states are other excerpts'."""
NOT_APPLICABLE = "N"
ORDERED = {"EDU", "PINCP_DECILE"}
NO_LIST = "INDP"
"""The dictionary does not list its 271 codes; INDP_CAT groups them."""
DESCRIPTION = (
    "NIST ACS excerpt, Massachusetts 2019. Values and ranges are those of the public data "
    "dictionary, bins are round numbers; nothing was read off the rows. INDP is left out: the "
    "dictionary does not list its codes."
)
BIN_STARTS = {
    "AGEP": range(0, 100, 5),
    "NOC": (0, 1, 2, 3, 4, 5, 6),
    "NPF": (2, 3, 4, 5, 6, 7, 8),
    "PINCP": (
        *(-9000, 0, 1, 5000, 10000, 15000, 20000, 25000, 30000, 40000, 50000),
        *(60000, 75000, 100000, 150000, 200000, 300000, 500000),
    ),
    "POVPIP": (*range(0, 500, 50), 501),
    "WGTP": (0, 1, 25, 50, 75, 100, 150, 200, 300, 500),
    "PWGTP": (1, 25, 50, 75, 100, 150, 200, 300, 500),
}
DENSITY_EDGES = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dictionary", type=Path, help="data_dictionary.json of the excerpts")
    dictionary = json.loads(parser.parse_args().dictionary.read_text())
    schema_of(dictionary).dump(TARGET, force=True)
    print(TARGET)


def schema_of(dictionary: dict[str, Any]) -> Schema:
    """The schema of the Massachusetts excerpt that a steward would declare.

    Raises:
        SchemaError: the dictionary's ranges do not fit the bins here.
    """
    columns = [_column(name, entry) for name, entry in dictionary.items() if name != NO_LIST]
    return Schema.parse(
        {"version": 1, "description": DESCRIPTION, "columns": columns, "ignore": [NO_LIST]}
    )


def _column(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    values = entry["values"]
    column: dict[str, Any] = {"name": name, "description": entry["description"]}
    if NOT_APPLICABLE in values:
        column["missing"] = [NOT_APPLICABLE]
    if name == "DENSITY":
        assert DENSITY_EDGES[0] <= values["min"] <= values["max"] <= DENSITY_EDGES[-1]
        return {**column, "type": "numeric", "edges": DENSITY_EDGES, "decimals": 1}
    if name in BIN_STARTS:
        return {**column, "type": "integer", **_range(values), "bin_starts": [*BIN_STARTS[name]]}
    listed = [key for key in values if key != NOT_APPLICABLE]
    if name == "PUMA":
        listed = [key for key in listed if key.startswith(STATE)]
    if name in ORDERED:
        column["ordered"] = True
        listed.sort(key=int)
    return {**column, "type": "categorical", "values": listed}


def _range(values: dict[str, Any]) -> dict[str, int]:
    """The span of the declared range and of the numbers that are listed beside it."""
    numbers = [int(key) for key in values if key.isdecimal()]
    numbers += [values["min"], values["max"]]
    return {"min": min(numbers), "max": max(numbers)}


if __name__ == "__main__":
    main()
