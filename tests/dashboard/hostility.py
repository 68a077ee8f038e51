"""Texts that would run, steer or disguise something if a page took them for more than texts."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

HOSTILE = (
    "<script>window.hit=1</script>",
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "<svg onload=window.hit=1>",
    '"><script>window.hit=1</script>',
    "'><img src=x onerror=window.hit=1>",
    '" onmouseover="window.hit=1" x="',
    "' autofocus onfocus='window.hit=1",
    "javascript:window.hit=1",
    "</pre><iframe src=javascript:window.hit=1></iframe>",
    "</title><script>window.hit=1</script>",
    "<!--<script>window.hit=1//-->",
    "]]><script>window.hit=1</script>",
    "{{ 7*7 }}{% raw %}<b>",
    "${window.hit=1}`${window.hit=1}`",
    "\u202egpj.exe\u2066",
    "\x00\x1b[31m<b>\r\n",
    "&lt;script&gt;window.hit=1&lt;/script&gt;",
    "+ADw-script+AD4-window.hit=1+ADw-/script+AD4-",
    "<a href='//evil.example' style='position:fixed;inset:0'>x</a>" + "A" * 300,
)
PAGES = (
    "/",
    "/queues/mail",
    *(f"/queues/mail/jobs?state={state}" for state in ("pending", "delayed", "processing", "completed", "failed")),
    "/queues/mail/jobs?state=cancelled",
    "/queues/mail/jobs?state=broken",
    "/queues/mail/jobs?state=failed&error=%3C",
    "/queues/mail/jobs/j0",
    "/queues/mail/failed",
    "/queues/mail/delayed",
    "/queues/mail/tasks",
    "/queues/mail/tasks/" + quote(HOSTILE[0], safe=""),
    "/queues/mail/schedules",
    "/queues/mail/schedules/s0",
    "/queues/mail/gates",
    "/queues/mail/gates/g0",
    "/queues/mail/batches",
    "/queues/mail/batches/b0",
    "/queues/mail/workflows",
    "/queues/mail/workflows?state=failed&task=" + quote(HOSTILE[0], safe=""),
    "/queues/mail/workers",
    "/queues/mail/log",
    *(f"/jobs?state={state}" for state in ("pending", "delayed", "processing", "completed", "failed", "broken")),
    "/failed",
    "/schedules",
    "/workers",
    "/search?q=%3Cscript%3Ewindow.hit",
)


def fill(raw: Any) -> None:
    """Write it."""
    prefix = "queue:mail:"
    raw.sadd("schedq:queues", "mail", *(text.replace("\x00", "") for text in HOSTILE))
    for n, text in enumerate(HOSTILE):
        fields = (
            "payload worker last_error result result_error traceback history claim_token attempts max_attempts "
            "enqueued_at_ms run_at_ms started_at_ms completed_at_ms last_error_at_ms cancelled_at_ms crashes"
        )
        job = dict.fromkeys([*fields.split(), text], text)
        job |= {"progress": json.dumps({"done": 1, "total": 2, "note": text}), "meta": json.dumps({text: text})}
        job |= {"run": text, "waits": json.dumps([["receive", text, None, text]]), f"tries:{text}": f"1 2 3 {text}"}
        job |= {f"step:1.{text}/{text}": json.dumps([text, text, text, 1, 2, 3, n])}
        line = json.dumps({"attempt": 1, "worker": text, "outcome": text, "error": text, "ended_at_ms": text})
        for place in ("pending", "processing", "completed", "failed", "cancelled"):
            for job_id in (f"{place}{n}", text):
                raw.lpush(prefix + place, job_id)
                raw.hset(f"{prefix}job:{job_id}", mapping=job | {"status": place})
        raw.zadd(prefix + "delayed", {text: 4e12, f"delayed{n}": 4e12})
        raw.hset(f"{prefix}job:delayed{n}", mapping=job | {"status": "delayed", "payload": json.dumps(text)})
        raw.hset(f"{prefix}job:j{n}", mapping=job | {"status": text, "history": f"{line}\n{line}"})
        call = {"task": text, "args": [text], "kwargs": {text: text}}
        raw.hset(f"{prefix}job:failed{n}", mapping={"payload": json.dumps(call), "id": text, "last_error_at_ms": 1})
        raw.lpush(prefix + "broken", json.dumps({"id": text, "reason": text, "at_ms": text}), text)
        raw.lpush(prefix + "samples", text, json.dumps({"at_ms": 1, "pending_depth": text}))
        raw.zadd(prefix + "workers", {text: 4e12})
        running = json.dumps([{"id": text, "task": text}, {"id": [text], "task": {text: 1}}])
        worker = dict.fromkeys(["host", "pid", "started_at_ms", "concurrency", "running", "version"], text)
        raw.hset(f"{prefix}worker:{text}", mapping=worker | {"jobs": running, "tasks": json.dumps([text])})
        for schedule_id in (text, f"s{n}"):
            raw.zadd(prefix + "schedules", {schedule_id: 4e12})
            names = ("cron", "tz", "owner", "last_job_id", "error", "payload", "definition", "version", "runs")
            raw.hset(f"{prefix}schedule:{schedule_id}", mapping=dict.fromkeys(names, text))
            slot = {"slot_ms": 1, "outcome": text, "why": text, "job_id": text}
            raw.lpush(f"{prefix}schedule:{schedule_id}:slots", json.dumps(slot), text)
        for gate in ("g0", text.replace(" ", "")):
            raw.hset(prefix + "gates", mapping={gate: text, f"{gate} code": text, f"{gate} set": text})
            raw.hset(prefix + "lanes", f"gate:{gate} {text}", 10_001 + n)
            raw.zadd(prefix + "held", {f"pending{n}": (10_001 + n) * 2**31})
        for group in ("b0", text):
            raw.zadd(prefix + "groups", {group: 0})
            facts = ("status", "head", "error", "total", "ended", "generation", "began_at_ms", "moved_at_ms")
            raw.hset(f"{prefix}group:{group}", mapping=dict.fromkeys(facts, text))
            raw.rpush(f"{prefix}group:{group}:failed", text, f"{n} 0 {text}")
        raw.xadd(prefix + "log", {"move": text, "id": text, "attempts": text, "at_ms": text, "note": text, "who": text})
    raw.set(prefix + "promoter", HOSTILE[0])
