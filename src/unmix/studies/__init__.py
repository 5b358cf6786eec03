"""Experiments as data: one cell of a table, and the runner of many."""
