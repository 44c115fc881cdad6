"""A table of three small columns, for tests that are not about what the columns are."""

SCHEMA = {
    "version": 1,
    "columns": [
        {"name": "a", "type": "integer", "min": 0, "max": 3},
        {"name": "b", "type": "categorical", "values": ["x", "y"]},
        {"name": "c", "type": "boolean"},
    ],
}
