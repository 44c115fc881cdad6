"""What a user of the harness must change, in one line."""


class Complaint(Exception):
    """A grid, table, file or option that the caller must change; the exit code is 2."""
