"""Records a worker's or promoter's requests and replies without changing the code that sends them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from schedq.background.reconnecting_client import ReconnectingClient
from schedq.errors import SchedqError
from schedq.model.records import Settlement
from schedq.transitions import Operation
from schedq.transitions.claim import Claim
from schedq.transitions.promote import Promotion
from schedq.transitions.scripts import header
from schedq.worker.cluster_renewal import ClusterRenewal
from schedq.worker.renewal import Renewal, RenewalBatch
from schedq.worker.wake_listener import LaterClaim
from scripts.tools.chaos.record import Recorder, now


def _position(script: str, name: str) -> int:
    """Where an argument of a script is among its arguments."""
    return [argument.name for argument in header(script).args].index(name)


_FIRST_SETTLED, _REQUEST = _position("settle", "endings"), _position("claim", "request")
_RECOVERED = _position("recover", "request")
_SETTLED_WIDTH = len(Settlement._fields)
_MOST_LOOKS_S = 1.0
_MOST_HOLDS_S = 0.25


class RequestLog:
    """Records the requests of this process without changing the code that sends them."""

    def __init__(self, recorder: Recorder) -> None:
        self._write = recorder.write
        self._numbers = itertools.count()
        self._noted_at: dict[tuple[str, str], float] = {}

    def install(self) -> None:
        """Record every request from now on."""
        exchange, ask, ask_node = ReconnectingClient.execute, Renewal._ask, ClusterRenewal._ask_node

        async def heard(
            link: ReconnectingClient, operations: Sequence[Operation[Any]], failed: Callable[[], None] | None = None
        ) -> list[Any]:
            began, sendings = now(), 1
            numbers = [self._sent(operation) for operation in operations]

            def again() -> None:
                nonlocal sendings
                sendings += 1
                if failed is not None:
                    failed()

            replies = await exchange(link, operations, again)
            for operation, number, reply in zip(operations, numbers, replies, strict=True):
                self._replied(operation, number, reply, began, sendings)
            return replies

        def renewed(renewal: Renewal, batches: Sequence[RenewalBatch]) -> list[list[str] | SchedqError]:
            began = now()
            found = ask(renewal, batches)
            self._renewed(began, batches, found)
            return found

        async def renewed_at_node(
            renewal: ClusterRenewal, batches: Sequence[RenewalBatch]
        ) -> list[list[str] | SchedqError]:
            began = now()
            found = await ask_node(renewal, batches)
            self._renewed(began, batches, found)
            return found

        ReconnectingClient.execute = heard  # type: ignore[method-assign,assignment]
        Renewal._ask = renewed  # type: ignore[method-assign,assignment]
        ClusterRenewal._ask_node = renewed_at_node  # type: ignore[method-assign,assignment]
        self._watch_later_claims()

    def _watch_later_claims(self) -> None:
        begin, read = LaterClaim.__init__, LaterClaim.read

        def begun(claim: LaterClaim, *args: Any) -> None:
            begin(claim, *args)
            self._write("claim", now(), claim.request_id)

        def answered(claim: LaterClaim, replies: Sequence[Any]) -> Any:
            reply = read(claim, replies)
            if isinstance(reply, Claim):
                self._write("claimed", now(), claim.request_id, _jobs(reply.jobs))
            return reply

        LaterClaim.__init__, LaterClaim.read = begun, answered  # type: ignore[method-assign,assignment]

    def _renewed(self, began: float, batches: Sequence[RenewalBatch], found: Sequence[list[str] | SchedqError]) -> None:
        ended = now()
        for batch, words in zip(batches, found, strict=True):
            if not isinstance(words, SchedqError):
                pairs = zip(batch.attempts, words, strict=True)
                self._write("renewed", began, ended, [(a.job.id, a.job.claim_token, word) for a, word in pairs])

    def _sent(self, operation: Operation[Any]) -> int:
        number = next(self._numbers)
        if operation.name == "claim":
            self._write("claim", now(), operation.args[_REQUEST])
        elif operation.name == "settle":
            self._write("settle", now(), number, _settlements(operation))
        return number

    def _replied(self, operation: Operation[Any], number: int, reply: Any, began: float, sendings: int) -> None:
        if isinstance(reply, Exception):
            return  # the outcome is unknown
        if operation.name == "claim":
            self._write("claimed", now(), operation.args[_REQUEST], _jobs(reply.jobs))
        elif operation.name == "recover":
            self._write("recovered", now(), operation.args[_RECOVERED], _jobs(reply[1]))
        elif operation.name == "settle":
            self._write("settled", now(), number, reply, sendings)
        elif operation.name == "reclaim" and reply[0].taken_back:
            self._write("taken", began, now(), reply[0].taken_back)
        elif isinstance(reply, Promotion):
            self._looked("look", operation.keys[0], _MOST_LOOKS_S)
            if reply.is_leader:
                self._looked("held", operation.keys[0], _MOST_HOLDS_S)

    def _looked(self, kind: str, key: str, apart_s: float) -> None:
        instant = now()
        if instant - self._noted_at.get((kind, key), 0.0) >= apart_s:
            self._noted_at[kind, key] = instant
            self._write(kind, instant, key)


def _jobs(jobs: Sequence[Any]) -> list[tuple[str, str, int, int]]:
    return [(job.id, job.claim_token, job.attempts, job.crashes) for job in jobs]


def _settlements(operation: Operation[Any]) -> list[tuple[Any, ...]]:
    args = operation.args
    return [tuple(args[at : at + 4]) for at in range(_FIRST_SETTLED, len(args), _SETTLED_WIDTH)]
