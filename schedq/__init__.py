"""schedq: run Python work now, later, and again and again on Redis."""

from schedq.ainspector import AsyncInspector
from schedq.aio import AsyncQueue
from schedq.backoff import Exponential, Fixed, Linear, Steps
from schedq.errors import (
    ArgumentsError,
    ClosedError,
    Conflict,
    JobCancelled,
    JobFailed,
    JobGone,
    NotAcknowledged,
    QueueFull,
    SchedqError,
    StoreUnavailable,
    UsageError,
)
from schedq.handle import Job
from schedq.inspector import Inspector
from schedq.job import ClaimedJob, JobRecord, NewJob
from schedq.observer import AttemptEnd, AttemptFacts, Observer, Vital
from schedq.operations.acting import Acted
from schedq.operations.audit import LogEntry
from schedq.operations.directory import WorkerRecord
from schedq.operations.failures import ErrorGroup, Errors
from schedq.operations.finding import JobPage
from schedq.operations.forecast import Bucket, Forecast
from schedq.operations.pulse import Pulse, TaskPulse
from schedq.operations.samples import Rate, Sample
from schedq.operations.schedules import Registration
from schedq.operations.skimming import Spread
from schedq.operations.timeline import AttemptRecord, Step, Timeline
from schedq.operations.timetable import ScheduleRecord, SlotRecord
from schedq.operations.transfer import Imported
from schedq.operations.unknown import UnknownTask
from schedq.operations.views import BrokenNote, Stats
from schedq.operations.why import Why
from schedq.outcome import Discard, Retry, Snooze
from schedq.queue import Queue
from schedq.running import CurrentJob, current_job
from schedq.schedule import ScheduleOptions
from schedq.schedules import AsyncSchedules, Schedules
from schedq.task import Task
from schedq.worker.stuck import StuckSlot
from schedq.worker.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Acted",
    "ArgumentsError",
    "AsyncInspector",
    "AsyncQueue",
    "AsyncSchedules",
    "AttemptEnd",
    "AttemptFacts",
    "AttemptRecord",
    "BrokenNote",
    "Bucket",
    "ClaimedJob",
    "ClosedError",
    "Conflict",
    "CurrentJob",
    "Discard",
    "ErrorGroup",
    "Errors",
    "Exponential",
    "Fixed",
    "Forecast",
    "Imported",
    "Inspector",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobGone",
    "JobPage",
    "JobRecord",
    "Linear",
    "LogEntry",
    "NewJob",
    "NotAcknowledged",
    "Observer",
    "Pulse",
    "Queue",
    "QueueFull",
    "Rate",
    "Registration",
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
    "Step",
    "Steps",
    "StoreUnavailable",
    "StuckSlot",
    "Task",
    "TaskPulse",
    "Timeline",
    "UnknownTask",
    "UsageError",
    "Vital",
    "Why",
    "Worker",
    "WorkerRecord",
    "__version__",
    "current_job",
]
