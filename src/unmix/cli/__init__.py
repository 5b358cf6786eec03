"""The command line: parse, call, print. Rooms are imported when a command needs them."""

from unmix.cli import export, federated, fit, judging, predict, reproduce, train
from unmix.cli.group import main

__all__ = ["export", "federated", "fit", "judging", "main", "predict", "reproduce", "train"]
