"""Programs with a worker of their own in a thread, whose isolated tasks have a module of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doors import Handle

pytestmark = pytest.mark.processes

SHOP = {
    "queues.py": """
import os
from schedq import Queue

reports = Queue(os.environ["NAME"], redis=os.environ["SERVER"])
""",
    "reports.py": """
import os
from shop.queues import reports

@reports.task(isolate=True)
def crunch():
    return os.getpid()
""",
    "worker.py": """
import shop.reports
from shop.queues import reports
""",
}
"""The recommended layout: a module that has only the queue, one with a task, and one that imports both."""

PROGRAM = """
import asyncio, atexit, os, signal, sys, threading
from shop.worker import reports
from schedq import Worker

worker, loop = Worker([reports]), asyncio.new_event_loop()
thread = threading.Thread(target=loop.run_until_complete, args=[worker.run()], daemon=True)
thread.start()

def stop():
    loop.call_soon_threadsafe(worker.stop)
    thread.join()

if "stop" in sys.argv:
    atexit.register(stop)
print(sys.modules["shop.reports"].crunch.enqueue().result(60) != os.getpid(), flush=True)
if "SIGTERM" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.parametrize("how", [("stop", "SIGTERM"), ()])
def test_a_program_runs_isolated_tasks_of_other_modules_and_ends(queue: Handle, tmp_path: Path, how: tuple[str, ...]):
    """The child has imported the task's module, and no idle child keeps the program from ending."""
    (tmp_path / "shop").mkdir()
    for name, text in SHOP.items():
        (tmp_path / "shop" / name).write_text(text)
    told = os.environ | {"NAME": queue.name, "SERVER": queue.server.unix_url, "PYTHONPATH": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *how], env=told, capture_output=True, text=True, timeout=120, check=False
    )

    assert (done.stdout, done.returncode) == ("True\n", 7 if "SIGTERM" in how else 0), done.stderr


CARELESS = """
import asyncio, multiprocessing
from schedq import Queue, Worker

queue = Queue("mail")

@queue.task
def nothing():
    pass

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=print)
    child.start()
    child.join()
    print(child.exitcode)
else:  # stands for a start without a guard
    asyncio.run(Worker([queue]).run())
"""


def test_a_child_that_imports_the_main_program_starts_no_worker(tmp_path: Path):
    (tmp_path / "program.py").write_text(CARELESS)

    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.stdout == "1\n"
    assert 'put what the program does under if __name__ == "__main__":' in done.stderr
