"""Long-running commands end when asked to, even while they start."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

DROPPED = """
import asyncio, os, signal
from schedq.cli import daemon

class Dropped:
    def __init__(self):
        self.itself = self  # a cycle: only the collector finds it

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

daemon.handle_signals()
Dropped()
async def work():
    await asyncio.sleep(30)
    os._exit(3)

daemon.run(work())
"""


def test_a_signal_that_comes_while_the_collector_works_before_the_start_is_not_lost():
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0


BESIDE = """
import asyncio, sys
from schedq.cli import daemon

def interrupt():
    raise KeyboardInterrupt

async def leave():
    sys.exit(3)

async def work():
    loop = asyncio.get_running_loop()
    {begin}
    await asyncio.sleep(0.05)
    print("continued")

daemon.handle_signals()
daemon.run(work())
"""


@pytest.mark.parametrize(
    "begin",
    ["task = loop.create_task(leave())", "loop.call_soon(sys.exit, 3)", "loop.call_soon(interrupt)"],
)
def test_a_task_or_callback_of_the_application_does_not_end_the_process(begin: str):
    code = BESIDE.format(begin=begin)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "continued\n")
    assert "a task or callback of the application tried to exit the process; continuing" in done.stderr


def test_work_that_ends_the_process_itself_does():
    code = BESIDE.format(begin="await leave()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (3, "")
