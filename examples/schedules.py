"""Recurring work. `schedq worker schedules:queue` runs it, `python schedules.py` shows the schedules."""

import time
from datetime import timedelta

from schedq import Queue, SlotRecord

queue = Queue("schedules")


@queue.every(2, overlap="skip")
def poll() -> None:
    """Takes longer than the interval between two slots: while one run is active, the next slot is skipped."""
    time.sleep(3)


@queue.every(timedelta(minutes=15), catch_up="all", jitter=20)
def count_visits() -> None:
    """Every quarter of an hour counts: after an outage, each missed slot runs as well."""


@queue.cron("30 2 * * *", tz="Europe/Berlin", window=timedelta(hours=4))
def back_up() -> str:
    """Runs once a night, even when clocks change. After an outage the last missed slot runs if at most 4 hours late."""
    return "backed up"


@queue.cron("0 9 * * MON#1", tz="America/New_York", catch_up="none", args=["the board"])
def report(to: str) -> str:
    """Runs on the first Monday of the month at nine, or not at all."""
    return f"a report for {to}"


def slots(schedule_id: str) -> tuple[SlotRecord, ...]:
    """What happened to a schedule's latest slots, newest first."""
    found = queue.schedules.get(schedule_id)
    return found.slots if found else ()


if __name__ == "__main__":
    queue.schedules.register()  # as every worker does when it starts
    queue.schedules.upsert("report-17", cron="0 18 * * MON-FRI", task=report, args=["team 17"])  # at run time
    for schedule in queue.schedules.list():
        upcoming = ", ".join(f"{slot:%a %d %b %H:%M:%S %z}" for slot in queue.schedules.next_slots(schedule.id, 2))
        print(f"{schedule.id:12} {schedule.words}: {upcoming}")

    if job_id := queue.schedules.trigger("back_up"):  # one job now, regardless of its slots
        print(queue.job(job_id).result(timeout=60))
    while "skipped" not in [slot.outcome for slot in slots("poll")]:
        time.sleep(0.5)
    for slot in slots("poll"):
        print("poll", slot.slot_ms, slot.outcome, slot.why or slot.job_id)
