"""From noisy marginals to rows: pure post-processing."""
