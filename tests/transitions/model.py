"""A model of a queue in plain Python; the real one is compared with it step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_ATTEMPTS = 3
BACKOFF_MS = 30_000
LEASE_MS = 10_000
FREE_RELEASES = 5


@dataclass
class ModelJob:
    """The expected state of one job."""

    id: str
    place: str
    due_ms: int = 0
    attempts: int = 0
    crashes: int = 0
    released: int = 0
    token: str = ""
    ended: tuple[str, str] = ("", "")
    started_ms: int = 0
    lease_ends_ms: int = 0
    is_stopping: bool = False
    task: str = ""


@dataclass
class Model:
    """A queue whose `pending` and lists of finished jobs are in order, oldest first."""

    now_ms: int
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    order: dict[str, list[str]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    lanes: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def places(self) -> dict[str, list[str]]:
        """In the form of `State.places`."""
        delayed = sorted((job for job in self.jobs.values() if job.place == "delayed"), key=lambda j: (j.due_ms, j.id))
        held = [job_id for task in sorted(self.numbers, key=self.numbers.__getitem__) for job_id in self.lanes[task]]
        order = self.order | {"pending": held + self.order.get("pending", [])}
        found = {place: list(ids) for place, ids in order.items() if ids}
        return found | ({"delayed": [job.id for job in delayed]} if delayed else {})

    def move(self, job: ModelJob, place: str, *, is_next: bool = False) -> None:
        """Move a job from its current place to the end, or the front, of another one."""
        if job.place in self.order and job.id in self.order[job.place]:
            self.order[job.place].remove(job.id)
        elif job.place == "pending":
            self.lanes[job.task].remove(job.id)
        job.place = place
        if place != "delayed":
            self.order.setdefault(place, []).insert(0 if is_next else len(self.order.get(place, [])), job.id)

    def enqueue(self, job_id: str, delay_ms: int, task: str = "") -> None:
        job = self.jobs[job_id] = ModelJob(job_id, "", self.now_ms + delay_ms, task=task)
        self.move(job, "delayed" if delay_ms else "pending")

    def promote(self) -> int:
        due = [job for job in self.jobs.values() if job.place == "delayed" and job.due_ms <= self.now_ms]
        for job in sorted(due, key=lambda job: (job.due_ms, job.id)):
            self.move(job, "pending")
        return len(due)

    def claim(self) -> ModelJob | None:
        """The job that is claimed; the caller fills in its token."""
        self.promote()
        self.hold()
        if not self.order.get("pending"):
            return None
        job = self.jobs[self.order["pending"][0]]
        self.move(job, "processing")
        job.attempts += 1
        job.started_ms, job.lease_ends_ms = self.now_ms, self.now_ms + LEASE_MS
        return job

    def hold(self) -> None:
        """Put the jobs of paused tasks that are before the next job of another task into the lanes of their tasks."""
        pending, next_ones = self.order.get("pending", []), dict[str, list[str]]()
        while pending and (job := self.jobs[pending[0]]).task in self.paused:
            pending.pop(0)
            if job.task not in self.numbers:
                self.made += 1
                self.numbers[job.task] = self.made
            lane = self.lanes.setdefault(job.task, [])
            (next_ones.setdefault(job.task, []) if job.ended[1] in ("release", "reclaim") else lane).append(job.id)
        for task, ids in next_ones.items():
            self.lanes[task][:0] = ids

    def pause(self, task: str) -> None:
        self.paused.add(task)

    def resume(self, task: str) -> bool:
        """Put back the held jobs of a task; returns whether it was paused."""
        if task in self.numbers:
            self.order.setdefault("pending", [])[:0] = self.lanes.pop(task)
            del self.numbers[task]
            if not any(self.lanes.values()):
                self.numbers.clear()
                self.made = 0
        was_paused = task in self.paused
        self.paused.discard(task)
        return was_paused

    def holds(self, job_id: str, token: str) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.place == "processing" and job.token == token

    def end(self, move: str, job_id: str, token: str, delay_ms: int = 0) -> bool:
        """End an attempt; returns whether the token is the holder's, or ended it the same way before."""
        job = self.jobs.get(job_id)
        if job is None:
            return False
        if not self.holds(job_id, token):
            return job.ended == (token, move)
        is_stopping, job.is_stopping = job.is_stopping and move != "complete", False
        job.token, job.ended = "", (token, move)
        if is_stopping:
            self.move(job, "cancelled")
        elif move == "complete":
            self.move(job, "completed")
        elif move == "fail":
            self.move(job, "failed")
        elif move in ("retry", "snooze"):
            job.due_ms = self.now_ms + (BACKOFF_MS if move == "retry" else delay_ms)
            job.attempts -= move == "snooze"
            self.move(job, "delayed")
        else:
            job.attempts -= job.released < FREE_RELEASES
            job.released += 1
            self.move(job, "pending", is_next=True)
        return True

    def renew(self, job_id: str, token: str) -> bool:
        if not self.holds(job_id, token):
            return False
        self.jobs[job_id].lease_ends_ms = self.now_ms + LEASE_MS
        return True

    def reclaim(self) -> list[str]:
        """Reclaim jobs whose lease has ended; returns their ids, sorted."""
        lost = [job for job in self.jobs.values() if job.place == "processing" and job.lease_ends_ms <= self.now_ms]
        back = []
        for job in sorted(lost, key=lambda job: (job.lease_ends_ms, job.id)):
            job.ended, job.token = (job.token, "reclaim"), ""
            job.crashes += 1
            job.attempts = max(job.attempts, job.crashes)
            is_stopping, job.is_stopping = job.is_stopping, False
            if is_stopping:
                self.move(job, "cancelled")
            elif job.attempts >= MAX_ATTEMPTS:
                self.move(job, "failed")
            elif job.crashes >= 2:
                job.due_ms = self.now_ms + BACKOFF_MS
                self.move(job, "delayed")
            else:
                back.append(job)
        for job in sorted(back, key=lambda job: (job.started_ms, job.id), reverse=True):
            self.move(job, "pending", is_next=True)
        return sorted(job.id for job in lost)

    def cancel(self, job_id: str) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.place in ("completed", "failed", "cancelled", "broken"):
            return "no"
        if job.place == "processing":
            job.is_stopping = True
            return "asked"
        self.move(job, "cancelled")
        return "cancelled"

    def reschedule(self, job_id: str, delay_ms: int) -> bool:
        job = self.jobs.get(job_id)
        if job is None or job.place != "delayed":
            return False
        job.due_ms = self.now_ms + delay_ms
        if not delay_ms:
            self.move(job, "pending", is_next=True)
        return True

    def requeue(self, job_id: str) -> bool:
        job = self.jobs.get(job_id)
        if job is None or job.place not in ("failed", "cancelled"):
            return False
        job.attempts = job.crashes = job.released = 0
        job.ended = ("", "")
        self.move(job, "pending")
        return True

    def purge(self) -> int:
        count = len(self.jobs)
        self.jobs.clear()
        self.order.clear()
        self.lanes = {task: [] for task in self.numbers}
        return count
