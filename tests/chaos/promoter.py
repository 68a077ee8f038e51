"""`schedq promoter`, with a witness beside it: the daemon itself imports no application."""

from __future__ import annotations

import sys

import tests.chaos.app  # noqa: F401 - it attends
from schedq.cli import main

if __name__ == "__main__":
    sys.argv[0] = "schedq"
    main()
