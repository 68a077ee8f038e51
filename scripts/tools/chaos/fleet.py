"""Many workers of one queue, each a process, started together; each is a candidate for the promoter lease.

They are forked from one preloaded process, because forty interpreters would keep the machine busy for too long.

python -m scripts.tools.chaos.fleet URL QUEUE COUNT FILE-FOR-PROMOTERS-AND-PIDS
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from schedq import Queue
from schedq.background.promoter import Promoter
from schedq.worker import Worker


def main(url: str, name: str, count: str, ids: str) -> None:
    for _ in range(int(count)):
        if os.fork() == 0:
            _work(Queue(name, redis=url), Path(ids))
            os._exit(0)
    for _ in range(int(count)):
        os.wait()


def _work(queue: Queue, path: Path) -> None:
    """Run one worker; record the id of its promoter."""
    begin = Promoter.__init__

    def noted(promoter: Promoter, *args: Any, **options: Any) -> None:
        begin(promoter, *args, **options)
        with path.open("a") as file:
            file.write(f"{promoter.id} {os.getpid()}\n")

    Promoter.__init__ = noted  # type: ignore[method-assign,assignment]
    queue.handler(lambda payload: payload)
    asyncio.run(Worker([queue], concurrency=1).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
