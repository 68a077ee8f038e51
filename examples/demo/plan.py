"""The demo's jobs, and the expected outcome of each; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Size = tuple[int, int]

WIDTHS = (64, 96, 128, 160, 240, 320, 480, 640)
WIDTHS_AT_ONCE = 3  # the others follow one by one during the run
SHEET_COLUMNS = 4
SHEET_WIDTH = 5400  # two to three seconds of work: long enough to be killed in the middle
SHEET_AT_S = 0.8
FIRST_DUE_S = 1.0
LAST_DUE_BEFORE_END_S = 0.5


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job of the demo.

    Attributes:
        id: its job id, also shown on the screen.
        task: name of the task in examples/app.py.
        arguments: for the task.
        at_s: when it is enqueued, in seconds from the start of the run.
        due_s: when it is due, in seconds from the start of the run; None: immediately.
        refusals: how often the webhook receiver responds with 503 before it accepts.
        file: the picture that it must have written, or ''.
        size: size of that picture, in pixels.
    """

    id: str
    task: str
    arguments: Mapping[str, object]
    at_s: float = 0
    due_s: float | None = None
    refusals: int = 0
    file: str = ""
    size: Size = field(default=(0, 0))


def planned_jobs(seconds: float, pictures: Mapping[str, Size]) -> tuple[PlannedJob, ...]:
    """All jobs of a run of `seconds`, in the order of enqueueing; `pictures` has the sizes by file name."""
    jobs = [
        *_copies(seconds, pictures),
        _contact_sheet(len(pictures)),
        *_webhooks(seconds),
        *_mails(seconds),
    ]
    return tuple(sorted(jobs, key=lambda job: job.at_s))


def _copies(seconds: float, pictures: Mapping[str, Size]) -> Iterator[PlannedJob]:
    for number, target in enumerate(WIDTHS):
        wave = max(0, number - WIDTHS_AT_ONCE + 1)
        for name, (width, height) in sorted(pictures.items()):
            stem = name.rpartition(".")[0]
            yield PlannedJob(
                f"{stem}-{target}",
                "resize",
                {"name": name, "width": target},
                at_s=wave * seconds / len(WIDTHS),
                file=f"{stem}-{target}.jpg",
                size=(target, round(height * target / width)),
            )


def _contact_sheet(pictures: int) -> PlannedJob:
    side = SHEET_WIDTH // SHEET_COLUMNS
    return PlannedJob(
        "contact-sheet",
        "contact_sheet",
        {"width": SHEET_WIDTH, "columns": SHEET_COLUMNS},
        at_s=SHEET_AT_S,
        file="contact-sheet.png",
        size=(SHEET_WIDTH, side * -(-pictures // SHEET_COLUMNS)),
    )


def _webhooks(seconds: float) -> Iterator[PlannedJob]:
    """Twelve at once, a quarter of them refused three times and a quarter once; eight later, a quarter refused once."""
    dues = [None] * 12 + list(_spread(8, FIRST_DUE_S, seconds - 2))
    for number, due_s in enumerate(dues, start=1):
        refusals = {1: 3, 2: 1}.get(number % 4, 0) if due_s is None else int(number % 4 == 1)
        event = {"type": "order.paid", "order": 1000 + number}
        yield PlannedJob(f"order-{1000 + number}", "deliver_webhook", {"event": event}, due_s=due_s, refusals=refusals)


def _mails(seconds: float) -> Iterator[PlannedJob]:
    for number, due_s in enumerate(_spread(20, FIRST_DUE_S, seconds - LAST_DUE_BEFORE_END_S), start=1):
        arguments = {
            "to": f"guest{number}@example.org",
            "subject": f"Reminder {number}",
            "text": f"You asked for this {due_s:.1f} s into the demo.",
        }
        yield PlannedJob(f"mail-{number:02}", "remind", arguments, due_s=due_s)


def _spread(count: int, first_s: float, last_s: float) -> Iterator[float]:
    return (first_s + (last_s - first_s) * n / (count - 1) for n in range(count))
