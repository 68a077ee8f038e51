"""`scripts/test --servers`: its arguments and its summary; running the tests is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tools import on_servers
from scripts.tools.servers import SERVERS, Found, MissingServerError, Wanted, find

RESULTS = """<testsuites><testsuite>
  <testcase classname="tests.transitions.test_claim" name="test_a"/>
  <testcase classname="tests.transitions.test_claim" name="test_b"><failure message="no"/></testcase>
  <testcase classname="tests.transitions.test_claim" name="test_breaks_while_ending"/>
  <testcase classname="tests.transitions.test_claim" name="test_breaks_while_ending"><error message="no"/></testcase>
  <testcase classname="tests.transitions.test_claim" name="test_c"><skipped type="pytest.skip"/></testcase>
  <testcase classname="tests.transitions.test_claim" name="test_d"/>
</testsuite></testsuites>"""


def test_the_end_counts_what_happened_and_names_what_failed(tmp_path: Path):
    results = tmp_path / "results.xml"
    results.write_text(RESULTS)
    report = on_servers.Report(Found("redis-6.2", "6.2.5", tmp_path), code=1, seconds=61.4)

    on_servers.count(results, report)

    assert str(report).split() == ["redis-6.2", "6.2.5", "2", "passed", "2", "failed", "1", "skipped", "61", "s"]
    assert report.failed == [
        "tests.transitions.test_claim::test_b",
        "tests.transitions.test_claim::test_breaks_while_ending",
    ]


@pytest.mark.parametrize(
    ("arguments", "names", "rest"),
    [
        (["--servers", "all"], list(SERVERS), []),
        (["-x", "--servers", "redis-6.2", "tests/transitions"], ["redis-6.2"], ["-x", "tests/transitions"]),
        (["--servers=valkey-8.1,redis-7.0", "-k", "a b"], ["valkey-8.1", "redis-7.0"], ["-k", "a b"]),
        (["--servers", "redis-6.2,redis-6.2"], ["redis-6.2"], []),
    ],
)
def test_names_are_taken_and_the_rest_is_for_pytest(arguments: list[str], names: list[str], rest: list[str]):
    assert on_servers.read(arguments) == (names, rest)


@pytest.mark.parametrize("arguments", [["--servers"], ["--servers="], ["--servers", "redis-5.0"], ["--servers", "-x"]])
def test_an_unknown_name_ends_it_with_the_names_there_are(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert on_servers.main(arguments) == 2
    assert "available: all, redis-6.2, redis-7.0, valkey-8.1, valkey-9.1" in capsys.readouterr().err


def _program(says: str, *, code: int = 0) -> Wanted:
    def fetch(folder: Path) -> Path:
        binary = folder / "program"
        binary.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
        binary.chmod(0o755)
        return binary

    return Wanted("redis-6.2", fetch)


def test_an_interrupted_download_starts_again_and_a_complete_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("scripts.tools.servers.FOLDER", tmp_path / "servers")
    (tmp_path / "servers" / "redis-6.2.new").mkdir(parents=True)
    (tmp_path / "servers" / "redis-6.2.new" / "half").touch()

    found = find(_program("Redis server v=6.2.5 sha=0"))

    assert (found.version, found.binary.exists()) == ("6.2.5", True)
    assert not (found.binary.parent / "half").exists()
    assert find(_program("another")) == found


@pytest.mark.parametrize("wanted", [_program("Redis server v=7.0.15"), _program("no library", code=127)])
def test_a_program_of_the_wrong_version_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted):
    monkeypatch.setattr("scripts.tools.servers.FOLDER", tmp_path / "servers")

    with pytest.raises(MissingServerError, match=r"^redis-6\.2 is not available: .*(v=7\.0\.15|no library)"):
        find(wanted)

    assert not (tmp_path / "servers" / "redis-6.2").exists()


def test_all_means_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("scripts.tools.servers.FOLDER", tmp_path / "servers")
    monkeypatch.setattr("scripts.tools.servers.shutil.which", lambda name: None)
    monkeypatch.setattr(on_servers, "run", lambda server, arguments: pytest.fail("it must not begin"))

    assert on_servers.main(["--servers", "redis-7.0"]) == 1

    assert capsys.readouterr().err.splitlines()[-1] == (
        "scripts/test: redis-7.0 is not available: it comes as a Debian package, and apt-get or dpkg is not on PATH"
    )
