"""The experiment harness: a grid of cells, each run in a process of its own and kept in a file."""
