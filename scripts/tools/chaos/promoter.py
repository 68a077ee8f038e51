"""`schedq promoter`, with a log of its requests: the daemon imports no application that could install one."""

from __future__ import annotations

import sys

from schedq.cli import main
from scripts.tools.chaos import app  # noqa: F401 - it logs requests

if __name__ == "__main__":
    sys.argv[0] = "schedq"
    main()
