"""The command line: parse, call, print. Rooms are imported when a command needs them."""

from unmix.cli import fit, predict, reproduce, train
from unmix.cli.group import main

__all__ = ["fit", "main", "predict", "reproduce", "train"]
