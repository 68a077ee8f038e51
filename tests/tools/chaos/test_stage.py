"""The processes of a chaos run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.tools.chaos.stage import Part


def test_an_unexpected_end_is_told_with_the_last_lines_of_the_log(tmp_path: Path):
    log = tmp_path / "worker-1.log"
    log.write_text("".join(f"line {number}\n" for number in range(9)) + "x" * 1000)
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        process.wait()
        told = Part("worker-1", 7, process, log).described_end().splitlines()

    assert told[0] == "worker-1-7 ended unexpectedly, exit code 3; the end of its log:"
    assert [line.strip()[:6] for line in told[1:]] == ["line 6", "line 7", "line 8", "xxxxxx"]
    assert len(told[-1].strip()) == 400
