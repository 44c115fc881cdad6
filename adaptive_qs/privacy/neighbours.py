"""Which tables the promise compares; named in every output."""

UNIT = "one row"
NEIGHBOURS = "add or remove one row"
