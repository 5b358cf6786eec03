"""The command line: parse, call, print. Rooms are imported when a command needs them."""

from unmix.cli import benchmarks, learning, scoring, studies
from unmix.cli.group import main

__all__ = ["benchmarks", "learning", "main", "scoring", "studies"]
