"""The queue of all programs, and the length of a day."""

from __future__ import annotations

import os
from datetime import timedelta

from schedq import Queue

queue = Queue("workflows")
DAY = timedelta(seconds=float(os.environ.get("SECONDS_PER_DAY", "86400")))
"""A demonstration has shorter days."""
