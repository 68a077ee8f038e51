"""Collects the outcome of the demo for the verdict: job records, picture files and received deliveries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from demo.checks import Deliveries, Kill, Results
from demo.plan import PlannedJob, Size
from demo.sandbox import Sandbox

if TYPE_CHECKING:  # this needs the extra `demo`, and examples/ on sys.path
    from demo.receivers import Arrival


def gather(sandbox: Sandbox, jobs: Sequence[PlannedJob], due_ms: Mapping[str, int], kill: Kill | None) -> Results:
    """Collect everything that the verdict is based on."""
    found = ((job.id, sandbox.queue.get_job(job.id)) for job in jobs)
    return Results(
        jobs=jobs,
        due_ms=due_ms,
        records={job_id: record for job_id, record in found if record is not None},
        files=picture_sizes(sandbox.pictures_out),
        webhooks=deliveries(sandbox.webhooks.arrivals),
        mails=deliveries(sandbox.mails.arrivals),
        kill=kill,
    )


def picture_sizes(folder: Path) -> dict[str, Size]:
    """File name → size in pixels of the pictures in a folder; unreadable or truncated files are left out."""
    from PIL import Image

    sizes = {}
    for path in folder.glob("[!.]*.*"):
        try:
            with Image.open(path) as picture:
                picture.load()
                sizes[path.name] = picture.size
        except OSError:
            continue
    return sizes


def deliveries(arrivals: Sequence[Arrival]) -> dict[str, Deliveries]:
    """Deliveries received, counted by job id."""
    by_key: defaultdict[str, list[Arrival]] = defaultdict(list)
    for arrival in list(arrivals):
        by_key[arrival.key].append(arrival)
    return {key: _counted(found) for key, found in by_key.items()}


def _counted(arrivals: Sequence[Arrival]) -> Deliveries:
    verdicts = [arrival.verdict for arrival in arrivals]
    return Deliveries(
        accepted=verdicts.count("accepted"),
        duplicates=verdicts.count("duplicate"),
        refused=verdicts.count("refused"),
        forged=verdicts.count("forged"),
        first_at_ms=min(arrival.at_ms for arrival in arrivals),
    )
