"""Commands that last end when they are told to, also while they begin."""

from __future__ import annotations

import subprocess
import sys

DROPPED = """
import asyncio, os, signal
from schedq.cli import lasting

class Dropped:
    def __init__(self):
        self.itself = self  # a cycle: only the collector finds it

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

lasting.heed_signals()
Dropped()
async def work():
    await asyncio.sleep(2)
    os._exit(3)

lasting.run(work())
"""


def test_a_signal_that_comes_while_the_collector_works_before_the_start_is_not_lost():
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0
