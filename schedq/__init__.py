"""schedq: run Python work now, later, and again and again on Redis."""

from schedq.aio import AsyncQueue
from schedq.backoff import Exponential, Fixed, Linear, Steps
from schedq.errors import (
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
from schedq.inspector import AsyncInspector, Inspector
from schedq.job import ClaimedJob, JobRecord, NewJob
from schedq.operations.acting import Acted
from schedq.operations.directory import WorkerRecord
from schedq.operations.finding import JobPage
from schedq.operations.forecast import Bucket, Forecast
from schedq.operations.schedules import Registration
from schedq.operations.timeline import AttemptRecord, Step, Timeline
from schedq.operations.timetable import ScheduleRecord, SlotRecord
from schedq.operations.transfer import Imported
from schedq.operations.views import BrokenNote, Stats
from schedq.operations.why import Why
from schedq.outcome import Discard, Retry, Snooze
from schedq.queue import Queue
from schedq.running import CurrentJob, current_job
from schedq.schedule import ScheduleOptions
from schedq.schedules import AsyncSchedules, Schedules
from schedq.task import Task

__version__ = "0.1.0"

__all__ = [
    "Acted",
    "AsyncInspector",
    "AsyncQueue",
    "AsyncSchedules",
    "AttemptRecord",
    "BrokenNote",
    "Bucket",
    "ClaimedJob",
    "ClosedError",
    "Conflict",
    "CurrentJob",
    "Discard",
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
    "NewJob",
    "NotAcknowledged",
    "Queue",
    "QueueFull",
    "Registration",
    "Retry",
    "SchedqError",
    "ScheduleOptions",
    "ScheduleRecord",
    "Schedules",
    "SlotRecord",
    "Snooze",
    "Stats",
    "Step",
    "Steps",
    "StoreUnavailable",
    "Task",
    "Timeline",
    "UsageError",
    "Why",
    "WorkerRecord",
    "__version__",
    "current_job",
]
