"""Code that an application attaches to a queue in addition to its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

from schedq.errors import UsageError
from schedq.queue.around import AttemptContext, checked_around
from schedq.queue.before_enqueue import BeforeEnqueue, checked_function
from schedq.queue.middleware import Middleware, checked_middleware
from schedq.queue.registry import Registry
from schedq.queue.requests import Connections
from schedq.queue.task import Task

if TYPE_CHECKING:  # imported when it is used: most programs only enqueue
    from schedq.model.gates import Gate, Rates
    from schedq.observer import Observer

P = ParamSpec("P")
R = TypeVar("R")
Hook = TypeVar("Hook", bound=BeforeEnqueue)
Layer = TypeVar("Layer", bound=Middleware)
Made = TypeVar("Made", bound=AttemptContext)
Watcher = TypeVar("Watcher", bound="Observer")


class Extensions:
    """Methods that attach code to a queue, until one of its workers starts.

    Attributes:
        registry: stores what is attached.
        connections: the connections of the queue.
    """

    registry: Registry
    connections: Connections

    def register(self, task: Task[P, R], /) -> Task[P, R]:
        """Register a task of another queue with this queue too, with the same options.

        Returns:
            The task of this queue, whose jobs are enqueued here.

        Raises:
            UsageError: it is not a task, another function has its name, or a worker of this queue has started.
        """
        if not isinstance(task, Task):
            raise UsageError(f"register takes a task of another queue, got {task!r:.200}; functions take @queue.task")
        self.registry.check_in_time("register")
        found = Task(task, self.connections)
        self.registry.add(found)
        return found

    def gate(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rates | None = None,
        key_concurrency: int | None = None,
        key_rate: Rates | None = None,
        weight: int = 1,
        serial: bool = False,
    ) -> Gate:
        """Define a gate: limits that the jobs of several tasks share, whichever workers run them. Sends nothing.

        A job holds a place in its gate from its start to its end. Until then it stays in the queue and occupies no
        worker. Jobs with different keys take turns. Workers store the definition when they start.

        Args:
            name: 1 to 48 characters of `A-Z a-z 0-9 _ . -`, the first a letter or digit.
            concurrency: the most jobs of the gate that run at the same time; None for no limit.
            rate: a `Rate` of the gate, or several of which all must allow a start.
            key_concurrency: the most jobs of each key that run at the same time.
            key_rate: the rates of each key.
            weight: how many turns it takes for one turn of a gate with weight 1; 1 to 1000.
            serial: run the jobs of a key one at a time, in order; a job that is retried keeps its key waiting.

        Raises:
            UsageError: an argument is invalid, or the gate is defined already with other limits.
        """
        from schedq.model.gates import Gate, declare

        made = Gate(
            name,
            concurrency=concurrency,
            rate=rate,
            key_concurrency=key_concurrency,
            key_rate=key_rate,
            weight=weight,
            serial=serial,
        )
        return declare(self.connections.settings.gates, made)

    def use(self, middleware: Layer, /) -> Layer:
        """Run middleware around each attempt at a job of this queue, inside the middleware added before it.

        Returns:
            The middleware, so that this can be a decorator.

        Raises:
            UsageError: it is not an async function (attempt, call_next), or a worker of this queue has started.
        """
        checked_middleware(middleware, "use")
        self.registry.check_in_time("use")
        self.registry.middleware.append(middleware)
        return middleware

    def around(self, function: Made, /) -> Made:
        """Call a function for each attempt and enter the context manager that it returns, around the task.

        This happens where the task runs: in its thread, on the event loop, or in its child process. Dependencies that
        are created there are inside too. An error on entering or leaving fails the attempt.

        Returns:
            The function, so that this can be a decorator.

        Raises:
            UsageError: it is not a plain function (attempt), or a worker of this queue has started.
        """
        checked_around(function)
        self.registry.check_in_time("around")
        self.registry.around.append(function)
        return function

    def observe(self, observer: Watcher, /) -> Watcher:
        """Let every worker notify an observer of what it does for this queue. Returns the observer.

        Raises:
            UsageError: it is not an `Observer`, or a worker of this queue has started.
        """
        from schedq.observer import Observer

        if isinstance(observer, type):
            raise UsageError(f"observe takes an object, got the class {observer.__name__}: write {observer.__name__}()")
        if not isinstance(observer, Observer):
            raise UsageError(f"observe takes an object of a class derived from schedq.Observer, got {observer!r:.200}")
        self.registry.check_in_time("observe")
        self.registry.observers.append(observer)
        return observer

    def before_enqueue(self, function: Hook, /) -> Hook:
        """Call a plain function before each job of this queue is stored. It may add headers, or raise to refuse it.

        It receives an `EnqueueFacts`. Several functions are called in the order in which they were added. They see the
        jobs that this process enqueues through this queue, blocking and asyncio. They do not see jobs that are created
        in Redis (by schedules, requeue or import) or by other programs.

        Returns:
            The function, so that this can be a decorator.

        Raises:
            UsageError: it is async or not a function, or a worker of this queue has started.
        """
        checked_function(function)
        self.registry.check_in_time("before_enqueue")
        self.connections.before_enqueue += (function,)
        return function
