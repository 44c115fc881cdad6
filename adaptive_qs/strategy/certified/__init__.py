"""Optimal strategies for one subworkload, each with a bound that proves it."""
