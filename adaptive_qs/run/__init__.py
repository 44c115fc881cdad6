"""One run: its options, its budget, and its steps."""
