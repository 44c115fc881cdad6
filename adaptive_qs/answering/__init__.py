"""Batch answering: plan without data, measure once, answer with error bars."""
