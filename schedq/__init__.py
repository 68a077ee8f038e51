"""schedq: run Python work now, later and again, on Redis.

PYTEST_DONT_REWRITE: a program may import it before it starts pytest, which then loads the plugin.
"""

import importlib
import typing

from schedq.aliases import name_now as _name_now
from schedq.errors import (
    ArgumentsError,
    BatchCancelled,
    BatchFailed,
    ClosedError,
    Conflict,
    JobCancelled,
    JobFailed,
    JobGone,
    MapFailed,
    NotAcknowledged,
    QueueFull,
    RecordFull,
    SchedqError,
    StepChanged,
    StepFailed,
    StoreUnavailable,
    UsageError,
)

if typing.TYPE_CHECKING:
    from schedq.dependencies.declaration import Depends
    from schedq.inspect.audit import LogEntry
    from schedq.inspect.batch_timeline import BatchEvent, BatchTimeline
    from schedq.inspect.bulk import Acted
    from schedq.inspect.error_groups import ErrorGroup, Errors
    from schedq.inspect.export import Imported
    from schedq.inspect.forecast import Bucket, Forecast
    from schedq.inspect.gates import GateKey, GateStatus
    from schedq.inspect.overview import Pulse, TaskPulse
    from schedq.inspect.samples import Sample, Throughput
    from schedq.inspect.search import JobPage
    from schedq.inspect.stats import BrokenNote, Stats
    from schedq.inspect.summary import Spread, UnknownTask
    from schedq.inspect.task_stats import CountedTime, TaskStats
    from schedq.inspect.timeline import AttemptRecord, OperationRecord, Timeline, TimelineEvent
    from schedq.inspect.why import Why
    from schedq.isolation.death import ProcessDied
    from schedq.isolation.remote_error import RemoteError
    from schedq.isolation.settings import IsolationSettings
    from schedq.model.backoff import Exponential, Fixed, Linear, Steps
    from schedq.model.current_job import CurrentJob, current_job
    from schedq.model.gates import Gate, Rate
    from schedq.model.groups import BatchProgress, ChildFailure
    from schedq.model.outcome import Discard, RateLimited, Retry, Snooze
    from schedq.model.placeholder import RESULT
    from schedq.model.progress import Progress
    from schedq.model.records import ClaimedJob, JobRecord, NewJob
    from schedq.model.task_stats import Counts, Histogram
    from schedq.model.tracking import track
    from schedq.model.unique import Debounce, Unique
    from schedq.observer import AttemptEnd, AttemptFacts, Observer, QueueHealth
    from schedq.queue.batch_results import BatchResults
    from schedq.queue.batches import AsyncBatch, Batch
    from schedq.queue.before_enqueue import inherit_headers
    from schedq.queue.enqueue_facts import EnqueueFacts
    from schedq.queue.flow import Flow, FlowNode
    from schedq.queue.gates import AsyncGates, Gates
    from schedq.queue.inspector import AsyncInspector, Inspector
    from schedq.queue.job import Job
    from schedq.queue.middleware import CallNext, Middleware
    from schedq.queue.queue import AsyncQueue, Queue
    from schedq.queue.schedules import AsyncSchedules, Schedules
    from schedq.queue.task import Task
    from schedq.schedules.definition import ScheduleOptions
    from schedq.schedules.records import ScheduleRecord, SlotRecord
    from schedq.schedules.register import Registration
    from schedq.transitions.heartbeat import WorkerRecord
    from schedq.worker.stuck import StuckSlot
    from schedq.worker.worker import Worker
    from schedq.workflows.context import WorkflowContext

__version__ = "0.1.0"

__all__ = [
    "RESULT",
    "Acted",
    "ArgumentsError",
    "AsyncBatch",
    "AsyncGates",
    "AsyncInspector",
    "AsyncQueue",
    "AsyncSchedules",
    "AttemptEnd",
    "AttemptFacts",
    "AttemptRecord",
    "Batch",
    "BatchCancelled",
    "BatchEvent",
    "BatchFailed",
    "BatchProgress",
    "BatchResults",
    "BatchTimeline",
    "BrokenNote",
    "Bucket",
    "CallNext",
    "ChildFailure",
    "ClaimedJob",
    "ClosedError",
    "Conflict",
    "CountedTime",
    "Counts",
    "CurrentJob",
    "Debounce",
    "Depends",
    "Discard",
    "EnqueueFacts",
    "ErrorGroup",
    "Errors",
    "Exponential",
    "Fixed",
    "Flow",
    "FlowNode",
    "Forecast",
    "Gate",
    "GateKey",
    "GateStatus",
    "Gates",
    "Histogram",
    "Imported",
    "Inspector",
    "IsolationSettings",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobGone",
    "JobPage",
    "JobRecord",
    "Linear",
    "LogEntry",
    "MapFailed",
    "Middleware",
    "NewJob",
    "NotAcknowledged",
    "Observer",
    "OperationRecord",
    "ProcessDied",
    "Progress",
    "Pulse",
    "Queue",
    "QueueFull",
    "QueueHealth",
    "Rate",
    "RateLimited",
    "RecordFull",
    "Registration",
    "RemoteError",
    "Retry",
    "Sample",
    "SchedqError",
    "ScheduleOptions",
    "ScheduleRecord",
    "Schedules",
    "SlotRecord",
    "Snooze",
    "Spread",
    "Stats",
    "StepChanged",
    "StepFailed",
    "Steps",
    "StoreUnavailable",
    "StuckSlot",
    "Task",
    "TaskPulse",
    "TaskStats",
    "Throughput",
    "Timeline",
    "TimelineEvent",
    "Unique",
    "UnknownTask",
    "UsageError",
    "Why",
    "Worker",
    "WorkerRecord",
    "WorkflowContext",
    "__version__",
    "current_job",
    "inherit_headers",
    "track",
]

_NAMES_OF_MODULES = {
    "schedq.dependencies.declaration": ["Depends"],
    "schedq.isolation.death": ["ProcessDied"],
    "schedq.isolation.remote_error": ["RemoteError"],
    "schedq.isolation.settings": ["IsolationSettings"],
    "schedq.inspect.audit": ["LogEntry"],
    "schedq.inspect.bulk": ["Acted"],
    "schedq.inspect.error_groups": ["ErrorGroup", "Errors"],
    "schedq.inspect.export": ["Imported"],
    "schedq.inspect.forecast": ["Bucket", "Forecast"],
    "schedq.inspect.gates": ["GateKey", "GateStatus"],
    "schedq.inspect.overview": ["Pulse", "TaskPulse"],
    "schedq.inspect.samples": ["Sample", "Throughput"],
    "schedq.inspect.search": ["JobPage"],
    "schedq.inspect.stats": ["BrokenNote", "Stats"],
    "schedq.inspect.summary": ["Spread", "UnknownTask"],
    "schedq.inspect.task_stats": ["CountedTime", "TaskStats"],
    "schedq.inspect.timeline": ["AttemptRecord", "OperationRecord", "Timeline", "TimelineEvent"],
    "schedq.inspect.batch_timeline": ["BatchEvent", "BatchTimeline"],
    "schedq.inspect.why": ["Why"],
    "schedq.model.backoff": ["Exponential", "Fixed", "Linear", "Steps"],
    "schedq.model.current_job": ["CurrentJob", "current_job"],
    "schedq.model.gates": ["Gate", "Rate"],
    "schedq.model.groups": ["BatchProgress", "ChildFailure"],
    "schedq.model.outcome": ["Discard", "RateLimited", "Retry", "Snooze"],
    "schedq.model.placeholder": ["RESULT"],
    "schedq.model.progress": ["Progress"],
    "schedq.model.records": ["ClaimedJob", "JobRecord", "NewJob"],
    "schedq.model.task_stats": ["Counts", "Histogram"],
    "schedq.model.tracking": ["track"],
    "schedq.model.unique": ["Debounce", "Unique"],
    "schedq.observer": ["AttemptEnd", "AttemptFacts", "Observer", "QueueHealth"],
    "schedq.queue.batch_results": ["BatchResults"],
    "schedq.queue.batches": ["AsyncBatch", "Batch"],
    "schedq.queue.before_enqueue": ["inherit_headers"],
    "schedq.queue.enqueue_facts": ["EnqueueFacts"],
    "schedq.queue.flow": ["Flow", "FlowNode"],
    "schedq.queue.gates": ["AsyncGates", "Gates"],
    "schedq.queue.inspector": ["AsyncInspector", "Inspector"],
    "schedq.queue.job": ["Job"],
    "schedq.queue.middleware": ["CallNext", "Middleware"],
    "schedq.queue.queue": ["AsyncQueue", "Queue"],
    "schedq.queue.schedules": ["AsyncSchedules", "Schedules"],
    "schedq.queue.task": ["Task"],
    "schedq.schedules.definition": ["ScheduleOptions"],
    "schedq.schedules.records": ["ScheduleRecord", "SlotRecord"],
    "schedq.schedules.register": ["Registration"],
    "schedq.transitions.heartbeat": ["WorkerRecord"],
    "schedq.worker.stuck": ["StuckSlot"],
    "schedq.worker.worker": ["Worker"],
    "schedq.workflows.context": ["WorkflowContext"],
}
"""Modules imported only when one of their names is first used, because most programs need few of them."""
_IMPORTED_WHEN_USED = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}


def __getattr__(name: str) -> typing.Any:
    now = _name_now(name) or name
    module = _IMPORTED_WHEN_USED.get(now)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[now] = getattr(importlib.import_module(module), now)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
