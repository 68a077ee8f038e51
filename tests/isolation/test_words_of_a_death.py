"""How the end of a child process is described, and its stack shown."""

from __future__ import annotations

import signal
import traceback

import pytest

from schedq.isolation.death import described, traceback_of
from schedq.isolation.remote_error import RemoteError, remote_error
from schedq.isolation.wire import Raised

DUMP = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "/app/shop.py", line 9 in inner
  File "/app/shop.py", line 4 in outer
  File "/lib/schedq/worker/caller.py", line 200 in _thread_main
  File "<string>", line 1 in <module>

Thread 0x00008f (most recent call first):
  File "/app/other.py", line 1 in other
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "its process ended with exit code 0"),
        (3, "its process ended with exit code 3"),
        (-signal.SIGSEGV, "its process was ended by signal 11 (SIGSEGV: Segmentation fault)"),
        (-signal.SIGKILL, "its process was killed from outside, often by the kernel for lack of memory (SIGKILL)"),
        (-250, "its process was ended by signal 250"),
        (None, "its process ended"),
    ],
)
def test_an_end_is_described(code: int | None, words: str):
    assert described(code) == words


def test_a_stack_is_that_of_the_function_innermost_call_last():
    assert traceback_of(DUMP, ("/lib/schedq/",)) == (
        "The process was here (most recent call last):\n"
        '  File "/app/shop.py", line 4, in outer\n'
        '  File "/app/shop.py", line 9, in inner\n'
    )


@pytest.mark.parametrize("dump", ["", "garbage\n", "Current thread 0x01 (most recent call first):\n"])
def test_without_frames_there_is_no_stack(dump: str):
    assert traceback_of(dump, ()) == ""


def test_an_error_of_a_child_has_the_name_and_the_traceback_of_the_original():
    error = remote_error(Raised("shop.stock", "Stock.Empty", "no more"), "Traceback of the child\n")

    assert isinstance(error, RemoteError)
    assert type(error).__name__ == "Empty"
    text = "".join(traceback.format_exception(error))
    assert "shop.stock.Stock.Empty: no more" in text
    assert "Traceback of the child" in text
