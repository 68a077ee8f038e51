"""Sums the corruptions counted by tests in all processes, and prints them in one line at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

PROPERTY = "corruptions"
"""The property under which a test records a dict: outcome of corruptions → count."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the line, unless no such test ran."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "call":
                    total.update(value)
    if total:
        ends = ", ".join(f"{count:,} {end}" for end, count in total.most_common())
        terminalreporter.write_line(f"corruptions: {total.total():,} cases: {ends}")
