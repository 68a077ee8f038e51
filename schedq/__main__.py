"""Runs the command line as `python -m schedq`."""

from schedq.cli import main

main()
