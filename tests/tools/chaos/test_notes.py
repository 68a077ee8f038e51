"""How instants, intervals and lines are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scripts.tools.chaos.faults import SERVER, Fault
from scripts.tools.chaos.logs import A_FEW, Line, is_schedqs_own, lines, most_jumps, repeated
from scripts.tools.chaos.record import read
from scripts.tools.chaos.servertime import ServerTime, Step
from scripts.tools.chaos.stalls import Stalls

ROOT = Path(__file__).parents[3]
HOUR_MS = 3_600_000


def test_the_servers_clock_is_known_between_its_steps():
    shown = ServerTime([(0, 1_000_000), (100, 1_100_000)], [Step(10, 12, HOUR_MS), Step(20, 21, 0)])

    assert shown.latest(0, 9) == shown.earliest(9, 9) == 1_009_000
    assert shown.latest(0, 11) == 1_011_000 + HOUR_MS
    assert shown.earliest(11, 15) == 1_011_000
    assert shown.earliest(13, 15) == 1_013_000 + HOUR_MS
    assert shown.latest(22, 30) == 1_030_000
    assert (shown.went_ahead(0, 9), shown.went_ahead(0, 15), shown.went_ahead(13, 30)) == (0, HOUR_MS, 0)


def test_when_the_servers_clock_shows_a_time_is_known_between_its_steps():
    shown = ServerTime([(0, 1_000_000), (100, 1_100_000)], [Step(10, 12, HOUR_MS), Step(20, 21, 0)])

    assert shown.instants(1_005_000, 0, 100) == [5]
    assert shown.instants(1_005_000, 6, 100) == []
    assert shown.instants(1_015_000 + HOUR_MS, 0, 100) == [15]
    assert shown.instants(1_030_000 + HOUR_MS, 0, 100) == []
    assert [round(shown.reached(1_000_000 + ms, 0, 100), 2) for ms in (5000, 50_000, HOUR_MS, HOUR_MS + 90_000)] == [
        4.98,
        9.98,
        9.98,
        99.98,
    ]
    assert (shown.stepped(0, 9), shown.stepped(0, 10), shown.stepped(13, 19)) == (False, True, False)


def test_stretches_that_overlap_count_once():
    faults = [Fault("cut", 1, 2, "w"), Fault("redis_kill", 1.5, 4, SERVER), Fault("cut", 1, 9, "another")]
    stalls = Stalls(faults, {"w": [(3, 5)], "director": [(8, 9)]}, ["director"])

    assert stalls.within("w", 0, 20) == 4 + 1
    assert stalls.within("w", 2, 4) == 2
    assert stalls.longest("w", 0, 20) == "redis_kill"
    assert (stalls.longest("w", 4.6, 5), stalls.longest("w", 6, 7)) == ("stood_still", "")
    assert stalls.of_anyone(0, 20) == 3


def test_a_line_over_and_over_is_noticed_and_one_per_job_is_not():
    same = [Line(n / 10, 1, f"redis://127.0.0.1:{n}: lost (no reply)") for n in range(A_FEW + 1)]
    jobs = [Line(n / 10, 1, f"job x{n}: lease ended, taken back") for n in range(500)]
    rare = [Line(61.0 * n, 1, "queue first: settings") for n in range(50)]

    (count,) = repeated([*same, *jobs, *rare], causes=0).values()

    assert count == A_FEW + 1
    assert repeated(same, causes=1) == {}
    assert repeated(same[:-1], causes=0) == {}


def test_messages_about_a_jump_of_the_clock_are_counted_by_process_and_queue():
    said = [Line(1, 1, f"queue {name}: Redis's clock jumped by +3600.0 s") for name in "ab"]

    assert most_jumps([]) == 0
    assert most_jumps([*said, Line(2, 2, said[0].text)]) == 1
    assert most_jumps([*said, Line(2, 1, said[0].text)]) == 2


def test_a_traceback_in_a_log_is_found_whichever_process_wrote_it(tmp_path: Path):
    entry = {"time": "2026-01-01T00:00:00.000+00:00", "pid": 7, "message": "oh", "traceback": "Traceback: …"}
    (tmp_path / "log").write_text(f"{json.dumps(entry)}\nTraceback (most recent call last):\n  File\n")

    assert [bool(line.traceback) for line in lines(tmp_path / "log")] == [True, True]


def test_a_process_records_that_it_was_frozen(tmp_path: Path):
    program = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from scripts.tools.chaos.record import Recorder\n"
        "Recorder(Path(sys.argv[1]), 'x').watch_for_gaps()\n"
        "print(flush=True); time.sleep(120)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            while not _has_gap(tmp_path):
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED)
                time.sleep(0.8)
                process.send_signal(signal.SIGCONT)
                time.sleep(0.3)
        finally:
            process.kill()

    assert all(until - since > 0.5 for _, (_, since, until) in read(tmp_path))


def _has_gap(folder: Path) -> bool:
    return any(line[0] == "gap" for _, line in read(folder))


def test_the_script_lists_its_options():
    said = subprocess.run(
        [sys.executable, "-m", "scripts.tools.chaos", "--help"], cwd=ROOT, capture_output=True, text=True
    )

    assert said.returncode == 0, said.stderr
    assert {"--seconds", "--seed", "--record", "--handbook", "--also", "--keep"} <= set(said.stdout.split())


def test_a_traceback_of_a_handler_is_not_an_error_of_schedq():
    assert not is_schedqs_own(Line(1, 2, "job 7f3a: refused failed for good, attempt 1: no", "Traceback"))
    assert is_schedqs_own(Line(1, 2, "job 7f3a: it could not be settled", "Traceback"))
    assert is_schedqs_own(Line(1, 2, "", "Traceback"))
    assert not is_schedqs_own(Line(1, 2, "ready"))
