"""Strategies put together: what to measure, and how answers and errors follow."""
