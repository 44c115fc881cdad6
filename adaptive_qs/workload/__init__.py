"""Which queries matter, and how much."""
