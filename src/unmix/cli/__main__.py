"""`python -m unmix.cli`, for where the command is not on the path."""

from unmix.cli import main

main()
