"""Run the tests on several servers in turn and print a summary.

    scripts/test --servers all|NAME[,NAME...] [pytest's arguments]

The exit code is 0 if all tests passed on all of the servers; a missing server is an error.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from scripts.tools.servers import FOLDER, SERVERS, Found, MissingServerError, find

ROOT = FOLDER.parent.parent
EMBEDDED = "valkey-9.1"
ONCE = (
    "tests/model",
    "tests/connection/test_address.py",
    "tests/connection/test_busy_poll.py",
    "tests/connection/test_topology.py",
    "tests/connection/test_request.py",
    "tests/connection/test_codec.py",
    "tests/tools/test_bench.py",
    "tests/stories/examples/test_demo.py",
    "tests/embedded/test_embedded.py",
    "tests/embedded/test_embedded_paths.py",
    "tests/laws/test_floor_plan.py",
    "tests/laws/test_lifecycle.py",
    "tests/tools/test_on_servers.py",
    "tests/laws/test_readme.py",
    "tests/laws/test_scripts.py",
    "tests/tools/test_servers.py",
    "tests/laws/test_signatures.py",
    "tests/laws/test_typing.py",
    "tests/stories/topologies",
)
"""Tests that don't depend on the server: they need none, or concern the embedded one. They run on one server only."""
NO_TESTS = 5
"""pytest's exit code if it found no tests."""


@dataclass(slots=True)
class Report:
    """The test results on one server."""

    server: Found
    code: int
    seconds: float
    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.server.name:<11} {self.server.version:<8} {self.passed:5} passed "
            f"{len(self.failed):4} failed {self.skipped:4} skipped {self.seconds:6.0f} s"
            + (
                "  no tests"
                if self.code == NO_TESTS
                else f"  (pytest's exit code {self.code})"
                if self.code > 1
                else ""
            )
        )


def main(arguments: list[str]) -> int:
    """Run, print the summary, and return the exit code."""
    try:
        names, rest = read(arguments)
    except ValueError as error:
        print(f"scripts/test: {error}", file=sys.stderr)
        return 2
    found: list[Found] = []
    for name in names:
        try:
            found.append(find(SERVERS[name]))
        except MissingServerError as error:
            print(f"scripts/test: {error}", file=sys.stderr)
    if len(found) < len(names):
        return 1
    reports = [run(server, rest) for server in found]
    print(flush=True)
    for report in reports:
        print(report)
    for report in reports:
        for name in report.failed:
            print(f"{report.server.name} fails: {name}")
    codes = {report.code for report in reports}
    return max(codes - {NO_TESTS}, default=NO_TESTS)


def read(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The servers' names, and the arguments for pytest.

    Raises:
        ValueError: unknown server, or none given.
    """
    rest = list(arguments)
    at = next(n for n, argument in enumerate(rest) if argument.partition("=")[0] == "--servers")
    word, mark, value = rest.pop(at).partition("=")
    if not mark:
        value = rest.pop(at) if at < len(rest) else ""
    names = list(SERVERS) if value == "all" else list(dict.fromkeys(value.split(",")))
    for name in names:
        if name not in SERVERS:
            raise ValueError(f"{word}: no server {name!r}; available: all, {', '.join(SERVERS)}")
    return names, rest


def run(server: Found, arguments: list[str]) -> Report:
    """Run pytest on one server."""
    print(f"\n== {server.name} ({server.version})", flush=True)
    ignored = [] if server.name == EMBEDDED else [f"--ignore={path}" for path in ONCE]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-n", "6", *ignored, *arguments]
        # xunit1, because a test that records properties is incompatible with the newer format.
        done = subprocess.run(
            [*command, f"--junitxml={results}", "-o", "junit_family=xunit1"],
            cwd=ROOT,
            env=os.environ | {"SCHEDQ_TEST_SERVER": str(server.binary)},
            check=False,
        )
        report = Report(server, done.returncode, time.monotonic() - began)
        if results.exists():
            count(results, report)
    return report


def count(results: Path, report: Report) -> None:
    """Read pytest's result of each test; a test that also failed in teardown is listed twice."""
    tests: dict[str, str] = {}
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314 - written by pytest just now
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {part.tag for part in case}
        if kinds & {"failure", "error"}:
            tests[name] = "failed"
        elif "skipped" in kinds:
            tests.setdefault(name, "skipped")
        else:
            tests.setdefault(name, "passed")
    outcomes = list(tests.values())
    report.passed, report.skipped = outcomes.count("passed"), outcomes.count("skipped")
    report.failed = [name for name, outcome in tests.items() if outcome == "failed"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
