"""`python -m schedq` is the command `schedq`."""

from schedq.cli import main

main()
