"""The command line: parse, call, print. Rooms are imported when a command needs them."""

from unmix.cli import export, federated, fit, predict, reproduce, train
from unmix.cli.group import main

__all__ = ["export", "federated", "fit", "main", "predict", "reproduce", "train"]
