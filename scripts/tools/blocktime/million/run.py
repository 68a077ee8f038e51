"""Run all operator actions and report those that exceed a limit."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from scripts.tools.blocktime.million.asks import commands, pages, verbs
from scripts.tools.blocktime.million.million_jobs import MillionJobs
from scripts.tools.blocktime.million.timing import Row, Watch, judged
from tests.pinging import Pinger, put_off_ms
from tests.servers import Server

_LISTENING: Final = re.compile(r"http://127\.0\.0\.1:(\d+)")
_TICKS_S: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_MAY_REFUSE: Final = ("doctor", "why", "cancel", "requeue", "reschedule")
"""Commands that exit with 1 if there are findings, or if an earlier try has already done the work."""


def operators(size: int, schedules: int, queues: int, tries: int, wanted: str = "") -> dict[str, Any]:
    """Try every action whose name contains `wanted`; returns the results, and what exceeds a limit."""
    load = os.getloadavg()[0]
    rows: list[Row] = []

    def show(row: Row) -> None:
        rows.append(row)
        print(row.line(), flush=True)

    with Server(maxmemory="6gb") as server:
        million = MillionJobs(server, size, schedules, queues)
        million.fill(lambda text: print(text, flush=True))
        with Pinger(server) as pinger:
            watch = Watch(server, million.store, pinger)
            try:
                for what, call in verbs(million).items():
                    if wanted in what:
                        show(watch.time(what, lambda call=call: call() and None, tries))  # type: ignore[misc]
                for words in commands(million):
                    what = f"schedq {' '.join(words)}"
                    if wanted in what:
                        show(watch.time(what, partial(_command, words, server), tries))
                for row in _pages(watch, million, tries, wanted):
                    show(row)
            finally:
                million.close()
    return {"load_before": round(load, 1), "load_after": round(os.getloadavg()[0], 1), **facts(rows)}


def facts(rows: list[Row]) -> dict[str, Any]:
    """The key results, for programs."""
    return {
        "tried": len(rows),
        "longest_answer_s": max((round(min(row.took_s), 2), row.what) for row in rows),
        "slowest_request_ms": max((round(min(row.slowest)[0], 1), row.what) for row in rows),
        "longest_ping_ms": max((round(min(row.pings_ms), 1), row.what) for row in rows),
        "over": judged(rows),
    }


def _command(words: list[str], server: Server) -> tuple[float, float]:
    """Run a command; returns its CPU time and the time it waited for a CPU, in seconds."""
    environment = os.environ | {"SCHEDQ_REDIS_URL": server.unix_url, "COLUMNS": "120"}
    process = subprocess.Popen(
        [sys.executable, "-m", "schedq", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    waited = put_off_ms(process.pid) / 1000  # readable because the ended process has not been reaped yet
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    assert process.returncode == 0 or (process.returncode == 1 and words[0] in _MAY_REFUSE), said
    return usage.ru_utime + usage.ru_stime, waited


def _pages(watch: Watch, million: MillionJobs, tries: int, wanted: str) -> Iterator[Row]:
    """Every page of a dashboard in a process of its own."""
    with _dashboard(million.server) as (pid, port):

        def get(path: str) -> tuple[float, float]:
            worked, waited = _worked_s(pid), put_off_ms(pid)
            line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            line.request("GET", path, headers={"accept": "text/html"})
            answer = line.getresponse()
            body = answer.read()
            line.close()
            assert answer.status in (200, 303), (path, answer.status, body[:500])
            return _worked_s(pid) - worked, (put_off_ms(pid) - waited) / 1000

        for path in pages(million):
            what = re.sub(r"cursor=\S+", "cursor=…", path.replace("/queues/", "/…/"))
            if wanted in what:
                yield watch.time(what, partial(get, path), tries)


@contextmanager
def _dashboard(server: Server) -> Iterator[tuple[int, int]]:
    """A running dashboard: its process and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "schedq", "dashboard", "--port", "0", "--redis", server.unix_url],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = next((match for line in process.stdout if (match := _LISTENING.search(line))), None)
        assert found, "the dashboard did not print its address"
        yield process.pid, int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _worked_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S
