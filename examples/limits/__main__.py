"""`python -m limits`: enqueue some jobs of each program."""

from __future__ import annotations

from limits.calls import fetch
from limits.customers import export
from limits.imports import load
from limits.provider import send
from limits.search import reindex

fetch.enqueue_many([fetch.with_args(city) for city in ("Oslo", "Lima", "Rome", "Kyiv", "Pune")])
export.enqueue_many([export.with_args("large", month) for month in range(1, 13)])
export.enqueue("small", 1)
load.enqueue_many([load.with_args(account, file) for file in ("a.csv", "b.csv", "c.csv") for account in ("ada", "bob")])
send.enqueue_many([send.with_args("acme", number) for number in range(5)])
edits = [reindex.enqueue(17, f"version {version}") for version in range(1, 6)]
print(f"{len({job.id for job in edits})} job for {len(edits)} edits of document 17")
