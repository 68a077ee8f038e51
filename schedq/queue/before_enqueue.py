"""`Queue.before_enqueue`: application functions that see each job before it is stored, for instance to add headers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from schedq.errors import UsageError
from schedq.model.callables import not_run, place_of
from schedq.model.current_job import running_job
from schedq.model.payload import decode, encode
from schedq.model.records import NewJob, Options
from schedq.model.tasks import is_task_call
from schedq.queue.requests import Connections
from schedq.transitions import enqueue

if TYPE_CHECKING:  # imported for the first job that such a function sees
    from schedq.queue.enqueue_facts import EnqueueFacts

BeforeEnqueue = Callable[["EnqueueFacts"], object]
"""Called before a job is stored. An exception that it raises reaches the caller of `enqueue`, and nothing is stored."""
F = TypeVar("F", bound=BeforeEnqueue)


def checked_function(function: F) -> F:
    """Return the function if it can be called before a job is stored.

    Raises:
        UsageError: it is not a plain function.
    """
    if not callable(function):
        raise UsageError(f"before_enqueue takes a function, got {function!r:.200}")
    if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise UsageError(
            f"before_enqueue takes a plain function, and {place_of(function)} is async: a blocking client calls it too"
        )
    return function


def inherit_headers(*names: str) -> BeforeEnqueue:
    """Return a function for `Queue.before_enqueue` that passes these headers of a handler's job on to jobs it enqueues.

    Without names it passes on all headers. Headers that the new job already has are not replaced. Outside a handler
    nothing is added.

    Raises:
        UsageError: a name is not a text.
    """
    for name in names:
        if not isinstance(name, str):
            raise UsageError(
                f"inherit_headers takes names of headers, got {name!r:.200}; "
                "write queue.before_enqueue(inherit_headers()) for all of them"
            )

    def inherit(job: EnqueueFacts) -> None:
        parent = running_job()
        for name, value in parent.headers.items() if parent is not None else ():
            if not names or name in names:
                job.headers.setdefault(name, value)

    return inherit


def prepared_options(connections: Connections, payload: Any, options: Options) -> Options:
    """The options of one job, with the headers that it has after all functions were called.

    Raises:
        UsageError: the payload or an option is invalid, or a function did not run. What a function raises is raised.
    """
    settings = connections.settings
    enqueue.check(settings, options)
    shown = decode(encode(payload, settings.max_payload))
    call = shown if is_task_call(shown) else {}
    from schedq.queue.enqueue_facts import EnqueueFacts

    facts = EnqueueFacts(
        queue=settings.name,
        task=call.get("task"),
        args=call.get("args", []),
        kwargs=call.get("kwargs", {}),
        payload=shown,
        job_id=options.job_id,
        delay=options.delay,
        run_at=options.run_at,
        expires=options.expires,
        headers=dict(options.headers or {}),
        **_gate_of(connections, options),
    )
    for function in connections.before_enqueue:
        returned = function(facts)
        if what := not_run(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise UsageError(f"before_enqueue: {place_of(function)} returned {what}, whose code has not run")
    return options._replace(headers=facts.headers)


def _gate_of(connections: Connections, options: Options) -> dict[str, str]:
    if options.gate is None:
        return {}
    from schedq.model.gates import stored_gate

    stored = stored_gate(connections.settings.gates, options.gate, options.key)
    return dict(zip(stored[::2], stored[1::2], strict=True))


def prepared_rows(connections: Connections, jobs: Iterable[Any], options: Options) -> list[NewJob]:
    """The jobs of one call of `enqueue_many`, each with all of its options, as `prepared_options` returns them."""
    rows = [
        (row.payload, enqueue.merged(row, options))
        for row in (each if isinstance(each, NewJob) else NewJob(each) for each in jobs)
    ]
    return [NewJob(payload, **prepared_options(connections, payload, own)._asdict()) for payload, own in rows]
