"""A request that is interrupted at any round trip of any verb is executed once, or its caller gets an error."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from schedq import Queue
from schedq.connection.request import Request
from schedq.transitions import scripts
from scripts.tools.crashes import matrix
from scripts.tools.crashes.wire import VERBS, WITHOUT_ROUND_TRIPS_OF_THEIR_OWN, Bench
from scripts.tools.explore.bug import changed
from tests.doors import Loop
from tests.servers import Server


@pytest.fixture(scope="module")
def bench(server: Server, loop: Loop) -> Iterator[Bench]:
    bench = Bench(server, loop)
    with patch.object(Request, "_wait_s", 0.001):  # the first wait before a request is sent again
        yield bench
    bench.close()


@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupted_request_is_done_once_or_its_caller_gets_an_error(bench: Bench, verb: str):
    cuts = list(bench.cuts(verb))

    print(f"{len(cuts)} cuts")
    assert [str(cut) for cut in cuts if cut.wrong] == []
    assert matrix.of_cuts(cuts) == matrix.known()["between"][verb]


def test_every_verb_is_cut_off():
    called: set[str] = {"enqueue_many"}
    for verb in VERBS.values():
        called |= set(verb.call.__code__.co_names)
    verbs = {name for name, found in vars(Queue).items() if inspect.isfunction(found) and name[0] != "_"}

    assert verbs - called == WITHOUT_ROUND_TRIPS_OF_THEIR_OWN & verbs


@pytest.mark.parametrize(
    ("verb", "script", "old", "new"),
    [
        ("complete", "settle", "settled[1] == token and settled[2] == move", "false"),
        ("requeue", "requeue", "local word = job and earlier_reply(job[3], request)", "local word"),
        ("enqueue", "enqueue", "word = existing(n, payload, if_exists, own_mark)", "word = nil"),
        ("claim", "recover", "if job and job[1]", "if false and job[1]"),
        ("cancel, pending", "cancel", "if before then return before end", ""),
    ],
)
def test_repeated_effects_are_noticed(server: Server, loop: Loop, verb: str, script: str, old: str, new: str):
    wrong, load = changed(script, old, new), scripts.load
    found: list[Any] = []

    with patch.object(scripts, "load", lambda asked: wrong if asked == script else load(asked)):
        bench = Bench(server, loop, "crash-wire-bug")
        try:
            found = [cut for cut in bench.cuts(verb) if cut.wrong]
        finally:
            bench.close()

    assert found
