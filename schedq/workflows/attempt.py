"""One attempt at a job of a workflow, for whoever runs it: a worker, or a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from schedq.errors import StoreUnavailable
from schedq.logs import log
from schedq.model.graph import FLOW_TASK
from schedq.model.outcome import Policy, described
from schedq.model.records import ClaimedJob
from schedq.model.runs import Run
from schedq.queue.flow import declared
from schedq.queue.handler import Handler, Invocation
from schedq.queue.queue import QueueBase
from schedq.queue.registry import NoHandler
from schedq.workflows import undo
from schedq.workflows.context import WorkflowContext
from schedq.workflows.flow import run_flow
from schedq.workflows.record import Record
from schedq.workflows.run import IN_PLACE_MS, InThread, WorkflowRun

_AGAIN_S: Final = 1.0


def check_code(job: ClaimedJob, handler: Handler, runner: str) -> None:
    """Check that the code which is registered here can continue a run.

    Args:
        job: the claimed job; of a run that has begun, or of any other task.
        handler: the function that its payload names.
        runner: names this process, for errors.

    Raises:
        NoHandler: the function is no workflow, or of a version that does not accept the run's.
    """
    if not job.run:
        return
    name, workflow = handler.name, handler.workflow
    if workflow is None:
        raise NoHandler(f"{runner} has task {name!r:.200}, but not as a workflow, which the job's run needs", name)
    version = Run.read(job.run).version
    if workflow.accepts is not None and version not in workflow.accepts:
        accepted = ", ".join(map(str, workflow.accepts))
        raise NoHandler(
            f"{runner} has workflow {name!r:.200} for runs of versions {accepted}, and this is one of {version}",
            name,
        )


class WorkflowAttempt:
    """Runs the function of a workflow with its context.

    Args:
        queue: the application's queue.
        job: the claimed job.
        call: the workflow and its arguments.
        policy: the job's rules for retries.
        in_thread: calls plain functions of steps.
    """

    def __init__(
        self, queue: QueueBase, job: ClaimedJob, call: Invocation, policy: Policy, in_thread: InThread
    ) -> None:
        workflow, settings = call.handler.workflow, queue.settings
        assert workflow is not None
        self._job, self._call, self._policy, self._in_thread = job, call, policy, in_thread
        self._in_place_ms = IN_PLACE_MS if settings.clock is None else 0  # a test's clock may not move
        client, self._connections = queue.aio._client, queue.connections
        self._find_call, self._undos = queue.registry.find, dict[str, undo.Undo]()
        self._record, self._is_flow = Record(client, settings, job, workflow), workflow.is_flow

    async def recall(self) -> Invocation:
        """Read what is recorded; returns the call to make. Redis may be away for a while.

        Raises:
            NoHandler: the run undoes what it has done, and this process does not have a task for that.
        """
        while True:
            try:
                await self._record.recall()
                break
            except StoreUnavailable as error:
                log.warning("job %s: its record can't be read yet: %s", self._job.id, described(error))
                await asyncio.sleep(_AGAIN_S)
        if self._record.undoing is not None:
            self._undos = undo.undos(self._record.undos, self._find_call)
        if self._record.args is None:
            return self._call
        args, kwargs = self._record.args
        return self._call._replace(args=args, kwargs=kwargs)

    async def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the function to its end.

        Raises:
            Suspended: it can only wait.
        """
        handler = self._call.handler
        run = WorkflowRun(
            self._record,
            self._job,
            self._policy,
            self._in_thread,
            handler.encoded,
            name=handler.name,
            in_place_ms=self._in_place_ms,
            connections=self._connections,
            find_call=self._find_call,
        )
        if self._record.undoing is not None:
            return await run.execute(undo.take_back(run, self._undos))
        if self._is_flow:
            declare = partial(declared, self._connections, handler.name, lambda flow: function(flow, *args, **kwargs))
            stored = (dict(enumerate(args)).get(1) or {}) if handler.name == FLOW_TASK else None
            return await run.execute(run_flow(run, self._connections, declare, stored))
        return await run.execute(function(WorkflowContext(run), *args, **kwargs))
