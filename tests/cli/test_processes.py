"""The command as a process: exit codes, pipes that close, questions on a terminal, signals."""

from __future__ import annotations

import codecs
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from schedq import Queue

pytestmark = pytest.mark.processes
COMMAND = (sys.executable, "-m", "schedq")
ROOT = Path(__file__).parents[2]


def schedq(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env=os.environ | environment,
    )


class Terminal:
    """A command on its own terminal."""

    def __init__(self, *words: str) -> None:
        self.pid, self._screen = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the tests may run where it is ignored
            os.execve(sys.executable, [*COMMAND, *words], os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"})
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end within a character
        self.text = ""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            self._read()

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def code(self, *, again: str = "") -> int:
        """Its exit code; `again` is typed once more whenever it had no effect for a while."""
        for _ in range(6):
            try:
                while self._read(5):
                    pass
                break
            except TimeoutError:
                self.type(again)
        else:
            raise AssertionError(f"it does not end: {self.text!r}")
        _, status = os.waitpid(self.pid, 0)
        os.close(self._screen)
        return os.waitstatus_to_exitcode(status)

    def _read(self, within: float = 30) -> bool:
        if select.select([self._screen], [], [], within)[0]:
            try:
                data = os.read(self._screen, 4096)
            except OSError:  # Linux: the other side was closed
                data = b""
            self.text += self._decoder.decode(data)
            return bool(data)
        raise TimeoutError(f"nothing for {within} s after {self.text!r}")


def test_exit_codes_and_streams_are_those_of_a_good_program(queue: Queue):
    done, refused, wrong = schedq("enqueue", "mail", "1"), schedq("job", "never-was", "--queue", "mail"), schedq("wat")

    assert (done.returncode, done.stderr, len(done.stdout.split())) == (0, "", 1)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        refused.stderr
        == "schedq: nothing is stored about job never-was in queue mail: trimmed, purged, or never enqueued\n"
    )
    assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (2, "", 1)


def test_redis_that_is_down_is_known_within_seconds():
    began = time.monotonic()
    said = schedq("stats", "mail", "--redis", "redis://127.0.0.1:1")

    assert (said.returncode, said.stdout, len(said.stderr.splitlines())) == (1, "", 1)
    assert time.monotonic() - began < 20  # about 1.5 s on a machine that has nothing else to do


def test_a_reader_that_exits_early_causes_no_error(queue: Queue):
    queue.enqueue_many(["x" * 500] * 2000)

    command = subprocess.Popen(
        [*COMMAND, "jobs", "mail", "--json", "--limit", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert command.stdout is not None
    assert command.stdout.read(10) == b'{"queue":"'
    command.stdout.close()
    _, complaint = command.communicate(timeout=60)

    assert complaint == b""


def test_a_full_disk_is_one_line(queue: Queue):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    queue.enqueue(1)
    with open("/dev/full", "w") as full:
        said = subprocess.run([*COMMAND, "stats", "--json"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)

    assert said.returncode == 1
    assert said.stderr.splitlines()[0] == "schedq: [Errno 28] No space left on device"
    assert "Traceback" not in said.stderr


def test_closed_standard_streams_cause_no_traceback(queue: Queue):
    queue.enqueue(1)

    for words in (["purge", "mail"], ["enqueue", "mail", "-"]):
        said = subprocess.run(
            ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, *words], capture_output=True, text=True, cwd=ROOT
        )
        assert said.returncode in (1, 2)
        assert len(said.stderr.splitlines()) == 1, said.stderr

    assert queue.stats()["pending_depth"] == 1


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 3), ("", 1, 3)], ids=["yes", "no", "enter"])
def test_a_purge_asks_on_a_terminal(answer: str, code: int, left: int, queue: Queue):
    queue.enqueue_many(range(3))

    terminal = Terminal("purge", "mail")
    terminal.until("? [y/N]: ")
    assert "Delete 3 jobs of queue mail at unix://" in terminal.text.replace("\r\n", "")
    assert "(3 pending)" in terminal.text
    terminal.type(f"{answer}\n")

    assert terminal.code() == code
    assert ("schedq: nothing was done" in terminal.text) == bool(code)
    assert queue.stats()["pending_depth"] == left


def test_control_c_at_the_question_does_nothing(queue: Queue):
    queue.enqueue(1)

    terminal = Terminal("purge", "mail")
    terminal.until("[y/N]: ")
    terminal.type("\x03")

    # The interpreter sleeps through one that comes between its last look and the read; a person presses again.
    assert terminal.code(again="\x03") == 1
    assert "schedq: interrupted" in terminal.text
    assert "Traceback" not in terminal.text
    assert queue.stats()["pending_depth"] == 1


def test_a_command_that_waits_for_its_input_can_be_interrupted(queue: Queue):
    command = subprocess.Popen(
        [*COMMAND, "enqueue", "mail", "--lines"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert command.stdin is not None
    assert command.stdout is not None
    command.stdin.write("1\n" * 5000)  # more than a batch, and more than a buffer
    command.stdin.flush()
    first = command.stdout.readline().strip()
    for _ in range(6):
        command.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            command.wait(20)  # another signal would hit the interpreter while it leaves
            break
    _, complaint = command.communicate(timeout=60)

    assert command.returncode == 1
    assert complaint.strip() == "schedq: interrupted"
    assert queue.get_job(first)


def test_colors_are_for_terminals_only(queue: Queue):
    queue.enqueue(1)

    terminal = Terminal("stats", "mail")

    assert terminal.code() == 0
    assert "\x1b[1" in terminal.text
    assert "\x1b" not in schedq("stats", "mail").stdout


def test_a_terminal_that_knows_few_characters_is_served(queue: Queue):
    queue.enqueue("✓")

    said = schedq("jobs", "mail", PYTHONIOENCODING="latin-1")

    assert (said.returncode, said.stderr) == (0, "")
    assert r"\u2713" in said.stdout
