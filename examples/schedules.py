"""Work that comes again and again. `schedq worker schedules:queue` does it, `python schedules.py` looks at it."""

import time
from datetime import timedelta

from schedq import Queue, SlotRecord

queue = Queue("schedules")


@queue.every(2, overlap="skip")
def poll() -> None:
    """Takes longer than its schedule has between two slots: while one runs, the next slot is skipped."""
    time.sleep(3)


@queue.every(timedelta(minutes=15), catch_up="all", jitter=20)
def count_visits() -> None:
    """Every quarter of an hour matters: after an outage each one that was missed runs, too."""


@queue.cron("30 2 * * *", tz="Europe/Berlin", window=timedelta(hours=4))
def back_up() -> str:
    """Once a night, also when clocks change; after an outage the last one missed, unless that is over 4 hours late."""
    return "backed up"


@queue.cron("0 9 * * MON#1", tz="America/New_York", catch_up="none", args=["the board"])
def report(to: str) -> str:
    """On the first Monday of the month at nine, or not at all."""
    return f"a report for {to}"


def slots(schedule_id: str) -> tuple[SlotRecord, ...]:
    """What became of the last slots of a schedule, the newest first."""
    found = queue.schedules.get(schedule_id)
    return found.slots if found else ()


if __name__ == "__main__":
    queue.schedules.register()  # as every worker does when it starts
    queue.schedules.upsert("report-17", cron="0 18 * * MON-FRI", task=report, args=["team 17"])  # at run time
    for schedule in queue.schedules.list():
        upcoming = ", ".join(f"{slot:%a %d %b %H:%M:%S %z}" for slot in queue.schedules.next_slots(schedule.id, 2))
        print(f"{schedule.id:12} {schedule.words}: {upcoming}")

    if job_id := queue.schedules.trigger("back_up"):  # once, now, whatever its slots
        print(queue.job(job_id).result(timeout=60))
    while "skipped" not in [slot.outcome for slot in slots("poll")]:
        time.sleep(0.5)
    for slot in slots("poll"):
        print("poll", slot.slot_ms, slot.outcome, slot.why or slot.job_id)
