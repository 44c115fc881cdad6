"""The experiment harness: a grid of cells, each run in a process of its own and kept in a file."""


class Complaint(Exception):
    """A grid, table, file or option that the caller must change; the exit code is 2."""
