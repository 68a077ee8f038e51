"""Renew the leases of running jobs, and store what their attempts report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq.model.payload import size_of
from schedq.model.progress import ProgressReport
from schedq.model.settings import Settings
from schedq.transitions import Argument, Binding, Operation, chunked

_RENEW: Final = Binding("renew", "reports", "held")
MOST_REPORTS: Final = 100
"""The most reports in one script, which blocks all other clients for about 15 µs each."""


def renew(
    queue: Settings, held: Sequence[tuple[str, str]], reports: Sequence[ProgressReport] = ()
) -> Operation[list[str]]:
    """Renew the leases of the jobs in `reports`, then those of `held` (id, token); at most 1000 in all.

    Returns OK, STOP or LOST for each, in this order.
    """
    words: list[Argument] = []
    for report in reports:
        words += [report.job_id, report.token, report.number, report.progress, report.meta]
    for pair in held:
        words += pair
    return Operation("renew", *_RENEW(queue, reports=len(reports), held=words), list)


def chunks(reports: Sequence[ProgressReport]) -> list[list[ProgressReport]]:
    """Split reports into chunks for one script each."""
    return chunked(reports, lambda report: size_of(report.progress) + size_of(report.meta) + 512, MOST_REPORTS)
