"""Fitting where rows may not leave their owners: each party answers with sums, never with rows."""
