"""`-n COUNT`: test files in several processes, with the results of one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

Run = Callable[..., tuple[int, str]]

CONFTEST = """
    import os
    import pytest

    pytest.ends_badly = False

    @pytest.fixture(scope="session")
    def pot():
        yield {}
        assert not pytest.ends_badly
"""
GOOD = """
    import os
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_a_session_lasts_for_all_files_of_a_process(pot, number, tmp_path, capfd):
        pot[__name__, number] = os.getpid()
        here = [each for name, each in pot if name == __name__]
        assert here == list(range(number + 1)) and set(pot.values()) == {os.getpid()}
        (tmp_path / "mine").touch(exist_ok=False)
        os.system("echo said")
        assert capfd.readouterr().out == "said\\n"
"""
BAD = """
    import os
    import pytest

    def test_skipped():
        pytest.skip("not now")

    @pytest.mark.xfail(reason="known")
    def test_known():
        assert False

    def test_fails():
        os.system("echo said before it failed")
        assert "this" == "that"
"""
DEADLY = """
    import os

    def test_before(): pass
    def test_deadly(): os._exit(9)
    def test_after(): pass
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs pytest on files in two processes; returns its exit code and its output."""

    def run(files: dict[str, str], *options: str) -> tuple[int, str]:
        for name, text in {"conftest.py": CONFTEST, "pytest.ini": "[pytest]", **files}.items():
            (tmp_path / name).write_text(dedent(text))
        program = [sys.executable, "-m", "pytest", "-p", "tests.parallel", "-n", "2", *options]
        alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(program, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_every_test_runs_once_and_is_reported(run: Run, tmp_path: Path) -> None:
    files = {f"test_{name}.py": GOOD for name in "cdef"} | {"test_a.py": BAD, "test_b.py": DEADLY}

    code, said = run(files, "--junitxml=results.xml")

    assert code == 1
    assert re.search(r"= 3 failed, 17 passed, 1 skipped, 1 xfailed in", said)
    assert said.count("said before it failed") == 2  # the line of the source, and the output
    assert "AssertionError: assert 'this' == 'that'" in said
    assert re.search(r"test_deadly _+\nthe process ended during this test\n", said)
    assert re.search(r"test_after _+\nthe process ended during a test before this one\n", said)
    results = (tmp_path / "results.xml").read_text()
    assert results.count("<testcase") == 22
    failed = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    assert len(json.loads(failed.read_text())) == 3


def test_the_files_that_are_left_when_all_processes_have_died_have_failed(run: Run) -> None:
    code, said = run({f"test_{name}.py": DEADLY for name in "abc"})

    assert code == 1
    assert re.search(r"= 7 failed, 2 passed in", said)
    assert len(re.findall(r"^every process had ended before$", said, re.MULTILINE)) == 3


def test_what_breaks_at_the_end_of_the_session_is_an_error_of_the_last_test(run: Run) -> None:
    bad = f"import pytest\npytest.ends_badly = True\n{dedent(GOOD)}"

    code, said = run({"test_a.py": "def test_a(): pass", "test_b.py": bad})

    assert code == 1
    assert re.search(r"= 5 passed, 1 error in", said)
    assert "assert not pytest.ends_badly" in said


def test_it_stops_after_so_many_failures(run: Run) -> None:
    code, said = run({f"test_{name}.py": "def test_it(): assert False" for name in "abcdef"}, "-x")

    assert code == 1
    assert re.search(r"= [12] failed in", said)
