"""Strategies and queries with integer coefficients, ready for exact noise."""
