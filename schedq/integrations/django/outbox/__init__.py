"""An outbox for Django: jobs that are enqueued if, and only if, the application's transaction commits.

It needs `schedq.integrations.django.outbox` in INSTALLED_APPS, whose migration creates the table.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from asgiref.sync import sync_to_async
from django.apps import apps as installed
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connections, router, transaction

from schedq.errors import UsageError
from schedq.integrations.outbox import Execute, Relay, Transaction, check_order_key, exact_key, new_row, row_of
from schedq.model.times import Duration
from schedq.queue.queue import QueueBase
from schedq.queue.task import Task

_PARAMETER: Final = re.compile(r":(\w+)")


class DjangoOutbox:
    """The table of jobs in one of the site's databases.

    Args:
        using: the alias of the database; by default the one to which the database routers send the model.
    """

    def __init__(self, using: str | None = None) -> None:
        self._using = using
        self._order_key: str | None = None

    @property
    def database(self) -> str:
        """The alias of its database.

        Raises:
            ImproperlyConfigured: the application is not installed.
        """
        return self._using or str(router.db_for_write(_model()))

    def ordered(self, key: str) -> Self:
        """Return a copy whose jobs are enqueued in the order in which their rows with this key were written."""
        made = copy.copy(self)
        made._order_key = key
        return made

    def enqueue(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """Write a call of the task in the transaction of this thread.

        Args:
            task: one of Django's framework, or of a schedq queue with its options.
            args: positional arguments of the call.
            kwargs: keyword arguments of the call.

        Returns:
            What `task.enqueue` returns: a TaskResult or a Job.

        Raises:
            ArgumentsError, UsageError: as `task.enqueue`; nothing is written.
        """
        if isinstance(task, Task):
            row, job = new_row(task, args, kwargs, self._order_key)
            self._write(row)
            return job
        backend = getattr(task, "get_backend", lambda: None)()
        write = getattr(backend, "write_to_outbox", None)
        if write is None:
            raise UsageError(f"an outbox takes tasks of schedq, by Django's framework or of a Queue, got {task!r:.200}")
        check_order_key(self._order_key)
        return write(self, task, args, kwargs)

    async def aenqueue(self, task: Any, *args: Any, **kwargs: Any) -> Any:
        """`enqueue` for asyncio. Django's transactions are in the thread of `sync_to_async`."""
        return await sync_to_async(self.enqueue)(task, *args, **kwargs)

    def write(self, settings: Any, encoded: Any) -> None:
        """Write a job that the backend has checked."""
        self._write(row_of(settings, encoded, self._order_key))

    def unsent(self, job_id: str) -> Any | None:
        """The row of a job that waits for a relay, or None."""
        rows = _model().objects.using(self.database)
        return rows.filter(sent_at_ms__isnull=True, job_id=job_id).first()

    def _write(self, row: dict[str, Any]) -> None:
        database, key = self.database, row["order_key"]
        if connections[database].vendor == "mysql" and key is not None:
            row["order_key"] = exact_key(key)
        _model().objects.using(database).create(**row)

    def relay(self, queues: Sequence[QueueBase], *, poll: Duration = 0.5, keep: Duration = 86_400) -> Relay:
        """Return a relay for the rows of these queues.

        Args:
            queues: the queues.
            poll: seconds or a timedelta between two looks at the table.
            keep: seconds or a timedelta until a sent row is deleted.

        Raises:
            UsageError: the database can't have an outbox.
        """
        database, table = self.database, _model()._meta.db_table
        vendor = connections[database].vendor
        if vendor not in ("sqlite", "postgresql", "mysql"):
            raise UsageError(f"an outbox needs PostgreSQL, MariaDB, MySQL or SQLite, and {database!r} is {vendor}")
        return Relay(
            [queue.blocking for queue in queues],
            _transaction(database),
            table,
            has_row_locks=vendor != "sqlite",
            poll=poll,
            keep=keep,
            label=table if database == "default" else f"{table}@{database}",
            close=lambda: connections[database].close(),
        )


def _model() -> Any:
    if not installed.is_installed(__name__):
        raise ImproperlyConfigured(f"the outbox needs {__name__!r} in INSTALLED_APPS, and its migration")
    from schedq.integrations.django.outbox.models import OutboxRow

    return OutboxRow


def _transaction(database: str) -> Transaction:
    def run(work: Any) -> Any:
        connection = connections[database]
        try:
            with transaction.atomic(using=database):
                return work(_execute(connection))
        except Error:
            if not connection.in_atomic_block:  # in a TestCase the connection is the test's
                connection.close()  # it may be broken; the next look opens another one
            raise

    return run


def _execute(connection: Any) -> Execute:
    def execute(sql: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        with connection.cursor() as cursor:
            cursor.execute(_PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")), dict(values))
            return list(cursor.fetchall()) if cursor.description else []

    return execute
