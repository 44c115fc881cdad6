"""Data-independent planning: how to divide a budget among measurements."""
