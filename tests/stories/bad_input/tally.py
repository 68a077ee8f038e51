"""Adds up the corruptions that tests counted, wherever they ran, and says so in one line at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

PROPERTY = "corruptions"
"""Name under which a test records a dict: what became of corruptions → how many."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The line; nothing if no such test ran."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "call":
                    total.update(value)
    if total:
        ends = ", ".join(f"{count:,} {end}" for end, count in total.most_common())
        terminalreporter.write_line(f"corruptions: {total.total():,} cases: {ends}")
