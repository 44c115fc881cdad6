"""Bins and values that nobody declared, learnt from the private rows and paid for."""
