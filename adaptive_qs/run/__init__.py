"""One run, of either job: its budget, its limits, and what a ledger remembers of it."""
