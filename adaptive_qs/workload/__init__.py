"""Which marginals matter, and how much."""
