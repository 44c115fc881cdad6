"""Comparison of a synthetic table with the truth: for the data owner only."""
