"""The guide's programs under `examples/guide`, in either language, on a scene's queue."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.stories.foreign.node import ROOT, node_path
from tests.stories.processes import app
from tests.stories.processes.scene import Process, Scene

GUIDE = ROOT / "examples" / "guide"


@dataclass(frozen=True)
class Client:
    """A language, and the command with which its worker claims."""

    language: str
    move: str

    def __str__(self) -> str:
        return f"{self.language}-{self.move}"

    def command(self) -> tuple[str, ...]:
        """The command that starts its program."""
        if self.language == "node":
            return (shutil.which("node") or "node", str(GUIDE / "node" / "main.js"))
        return (sys.executable, str(GUIDE / "python" / "main.py"))

    def how(self) -> dict[str, Any]:
        """How a process of a scene runs it: in Python as a fork of a process that has imported redis already."""
        is_fork = self.language == "python"
        return {"command": self.command()[is_fork:], "is_fork": is_fork}

    def environment(self) -> dict[str, str]:
        """Environment variables with which its libraries are found."""
        return {"NODE_PATH": node_path()} if self.language == "node" else {}


ALL = tuple(Client(language, move) for language in ("python", "node") for move in ("blmove", "brpoplpush"))
EACH_LANGUAGE = (Client("python", "blmove"), Client("node", "brpoplpush"))


class Guide:
    """One client's programs in one scene."""

    def __init__(self, scene: Scene, client: Client) -> None:
        self.scene = scene
        self.client = client

    def start(self, verb: str, *options: object, redis: str | None = None) -> Process:
        """Start one; `redis` may be the URL of a proxy."""
        url = redis or self.scene.server.url
        if self.client.language == "python":
            url += "?socket_timeout=60"  # five seconds by default, for which a test may hold a reply
        words = ("--redis", url, "--queue", app.NAME, verb, *map(str, options))
        return self.scene.start(*words, how=self.client.how(), **self.client.environment())

    def worker(self, *options: object, redis: str | None = None) -> Process:
        """A worker that claims with this client's command."""
        return self.start("work", "--move", self.client.move, *options, redis=redis)

    def waiting_worker(self, *options: object) -> Process:
        """A worker that blocks until there is a job."""
        waiting = self.scene.waiting()
        worker = self.worker(*options)
        self.scene.until(lambda: self.scene.waiting() > waiting, within=60)
        return worker

    def say(self, verb: str, *options: object) -> str:
        """The output of a program that ends by itself."""
        done = self.start(verb, *options)
        assert done.code() == 0, repr(done)
        return done.output.strip()

    def produce(self, payload: object, *options: object) -> str:
        """Store one or more jobs; returns their ids, one per line."""
        return self.say("produce", json.dumps(payload), *options)


def lines(process: Process) -> list[dict[str, Any]]:
    """Its output so far, without an incomplete last line."""
    return [json.loads(line) for line in process.output.splitlines(keepends=True) if line.endswith("\n")]


def did(word: str, *processes: Process) -> list[str]:
    """The ids of jobs for which the processes printed this word."""
    return [line["id"] for process in processes for line in lines(process) if line["did"] == word]


def totals(scene: Scene, names: Sequence[str]) -> dict[str, Any]:
    """Some of the queue's totals as schedq reports them."""
    stats = scene.queue.stats()
    return {name: stats[name] for name in names}
