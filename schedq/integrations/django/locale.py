"""The language and the time zone of the code that enqueues, as headers of its jobs, and active in their attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone, translation

from schedq.logs import log
from schedq.model.current_job import current_job
from schedq.queue.enqueue_facts import EnqueueFacts

LANGUAGE: Final = "language"
TIME_ZONE: Final = "time_zone"


def locale_headers(*, language: bool = True, time_zone: bool = True) -> Callable[[EnqueueFacts], None]:
    """Return a function for `Queue.before_enqueue` that adds what is active to a job's headers."""

    def write(job: EnqueueFacts) -> None:
        for name, value in active_locale(language=language, time_zone=time_zone).items():
            job.headers.setdefault(name, value)

    return write


def active_locale(*, language: bool, time_zone: bool) -> dict[str, str]:
    """Return the headers for what is active in this thread or task."""
    found = {LANGUAGE: translation.get_language() if language else None}
    if time_zone:
        found[TIME_ZONE] = _name(timezone.get_current_timezone())
    return {name: value for name, value in found.items() if value}


@contextmanager
def locale_of_job() -> Iterator[None]:
    """Activate the language and the time zone of the running job's headers, in this thread or task.

    The backend does this if its options ask for it.
    """
    given = current_job().headers
    with ExitStack() as stack:
        try:
            if code := given.get(LANGUAGE):
                stack.enter_context(translation.override(translation.get_supported_language_variant(code)))
            if name := given.get(TIME_ZONE):
                stack.enter_context(timezone.override(_zone(name)))
        except (LookupError, ValueError) as error:  # the site no longer has it, or another program has written it
            log.warning("job %s runs without its language or time zone: %s", current_job().id, error)
        yield


def _name(zone: tzinfo) -> str:
    """A name that `_zone` reads: `Europe/Berlin`, or for a fixed offset `+02:00`."""
    return getattr(zone, "key", None) or datetime.now(zone).isoformat()[-6:]


def _zone(name: str) -> tzinfo:
    if name[:1] in "+-":
        return datetime.strptime(name, "%z").tzinfo or timezone.get_default_timezone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise LookupError(f"no time zone {name!r}") from error
