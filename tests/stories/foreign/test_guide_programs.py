"""The programs under `examples/guide` as used from a shell."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.stories.foreign.guide import EACH_LANGUAGE, Client
from tests.stories.foreign.node import SOURCE

pytestmark = pytest.mark.processes

VERBS = ("produce", "work", "reclaim", "stats", "events")
by_language = pytest.mark.parametrize("client", EACH_LANGUAGE, ids=lambda client: client.language)


def run(client: Client, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, environment = client.command(), client.environment()
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_both_languages_have_the_same_verbs_and_options():
    python, node = EACH_LANGUAGE
    pages = [run(python, *verb, "--help").stdout for verb in ((), *((verb,) for verb in VERBS))]
    page = run(node, "--help").stdout  # one page for all verbs

    assert options("".join(pages)) == options(page) | {"--help"}
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", pages[0])
        assert re.search(rf"\b{verb}\b", page)


def options(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))


@by_language
@pytest.mark.parametrize("wrong", [("dance",), ("produce", "{"), ("work", "--speed", "9")], ids=" ".join)
def test_wrong_usage_is_reported_without_a_traceback(client: Client, wrong: tuple[str, ...]):
    done = run(client, *wrong)

    assert done.returncode == 2
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert "    at " not in done.stderr  # as Node.js shows a stack


def test_the_lock_file_pins_every_package_and_names_no_host():
    text = (SOURCE / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]

    assert "://" not in text
    assert all(entry["version"] and entry["integrity"] for name, entry in packages.items() if name)
