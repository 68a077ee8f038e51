"""The scripts of a wheel have short names, and do what those of the repository do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedq import Fixed, Job, Queue, WorkflowContext
from schedq.testing import QueueTester
from schedq.transitions import scripts
from scripts.tools import lua_names, package
from tests.workflows.conftest import tester

__all__ = ["tester"]

FOLDER = package.ROOT / "schedq"
HEAD = "--[[\n.\n\nKEYS  pending (list)\nARGV  clock\n      ids...\nReturns  .\n]]\n"
TEXT = re.compile(r"'[^'\n]*'|\A--\[\[.*?\]\]", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")


def _of_the_wheel() -> dict[str, str]:
    paths = sorted(FOLDER.rglob("*.lua"))
    return {
        path.relative_to(FOLDER).as_posix(): package._shortened(path.name, path.read_text().encode()) for path in paths
    }


@pytest.mark.parametrize(
    ("code", "short"),
    [
        ("local found = 1\nreturn found", "local a=1\nreturn a"),
        ("local first, second = 1, 2\nreturn second", "local b,a=1,2\nreturn a"),
        ("local function twice(value) return value * 2 end", "local function b(a) return a*2 end"),
        ("for _, name in ipairs(KEYS) do f(name) end", "for _,a in ipairs(KEYS) do f(a) end"),
        ("local found = {found = 1}\nreturn found.found", "local a={found=1}\nreturn a.found"),
        ("local found = {[1] = 2,\nfound = 'found'}", "local a={[1]=2,\nfound='found'}"),
        ("local found = {function() found = 1 end, found == 1}", "local a={function() a=1 end,a==1}"),
        ("local pending = clock .. ids_start", "local pending=clock .. ids_start"),
        ("local long, a = 1, 2\nreturn long", "local b,a=1,2\nreturn b"),
        ("--@include found\nlocal found = 1", "--@include found\nlocal a=1"),
        ("f(1 .. 'x', ' , ', 2 - -1)", "f(1 .. 'x',' , ',2 - -1)"),
    ],
)
def test_names_that_a_script_declares_are_short_and_spaces_go_where_none_is_needed(code: str, short: str) -> None:
    assert lua_names.with_short_names({"a.lua": HEAD + code}) == {"a.lua": HEAD + short}


def test_a_script_and_the_fragments_that_it_includes_have_the_same_names() -> None:
    texts = {"shared/now.lua": "local function read_now() return 1 end", "a.lua": HEAD + "return read_now()"}

    found = lua_names.with_short_names(texts)

    assert found == {"shared/now.lua": "local function a() return 1 end", "a.lua": HEAD + "return a()"}


def test_each_long_name_has_one_short_name_that_is_free() -> None:
    texts = _of_the_wheel()

    short = lua_names.with_short_names(texts)

    pairs = {pair for path, text in texts.items() for pair in _pairs(text, short[path])}
    changed = {(old, new) for old, new in pairs if old != new}
    used = {name for text in texts.values() for name, is_variable in lua_names._names(text) if is_variable}
    assert len(changed) > 500
    assert len({old for old, _ in changed}) == len({new for _, new in changed}) == len(changed)
    assert {new for _, new in changed} & used == set()
    assert [path for path in texts if _unnamed(texts[path]) != _unnamed(short[path])] == []


def _pairs(text: str, short: str) -> Iterator[tuple[str, str]]:
    return zip(WORD.findall(text), WORD.findall(short), strict=True)


def _unnamed(text: str) -> str:
    """All that is neither a word nor a space, and what stays: headers, texts and fields."""
    return WORD.sub("", text).replace(" ", "") + "".join(TEXT.findall(text)) + "".join(re.findall(r"\.\w+", text))


def test_jobs_run_with_the_scripts_of_a_wheel(
    tester: QueueTester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripts.json").write_text(json.dumps(lua_names.with_short_names(_of_the_wheel())))
    monkeypatch.setattr(scripts, "_PACKAGE", tmp_path)
    caches = (scripts._packed, scripts._fragment, scripts.header, scripts.load)
    for each in caches:
        each.cache_clear()
    try:
        assert _ends(tester) == {"retried": "completed", "limited": "completed", "parent": "completed"}
    finally:
        for each in caches:
            each.cache_clear()


def _ends(tester: QueueTester) -> dict[str, str]:
    """The states of a job that fails once, of one with a key, and of a workflow with a sleep, a step and a call."""
    queue, tries = Queue("shop", backoff=Fixed(60)), []

    @queue.task
    def retried() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not now")

    @queue.task(serial=True, key="n")
    def limited(n: int) -> int:
        return n

    def one() -> int:
        return 1

    @queue.workflow
    async def parent(ctx: WorkflowContext) -> int:
        await ctx.sleep(30)
        return await ctx.step(one) + await ctx.call(limited, 2)

    jobs: dict[str, Job[Any]] = {
        "retried": retried.enqueue(),
        "limited": limited.enqueue(3),
        "parent": parent.enqueue(),
    }
    tester.fast_forward()
    return {name: job.status() for name, job in jobs.items()}
