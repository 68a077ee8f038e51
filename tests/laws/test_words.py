"""One standard word per idea, the one that a stranger would search for, and none of the former private words."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import schedq
from tests.cases import for_each

ROOT = Path(schedq.__file__).parent
ALIASES = ROOT / "aliases.py"
"""The only module that may know retired public names."""
RETIRED: dict[str, dict[str, str]] = {
    "background": {},
    "cli": {
        "acting": "act_on_each",
        "calm": "tune",
        "carrying": "export, import",
        "filling": "backfill",
        "heed": "handle",
        "lasting": "daemon",
        "mishap": "failure",
        "monitoring": "monitored",
        "pausing": "pause",
        "registering": "upsert",
        "showing": "show",
        "steering": "control",
        "telling": "show",
    },
    "connection": {
        "aline": "async connection",
        "asender": "async client",
        "convoy": "group commit",
        "exchange": "request, execute",
        "faults": "redis errors",
        "greeting": "handshake",
        "hearing": "callback",
        "passenger": "pending request",
        "sender": "client",
    },
    "dashboard": {
        "deed": "action",
        "intent": "form",
        "intents": "actions",
        "seal": "signer",
        "visit": "queue_pool",
        "visits": "queue_pool",
        "wording": "template_filters",
    },
    "doctor": {"agreement": "settings", "judge": "check", "timetable": "schedules"},
    "embedded": {"dying": "ending with parent", "visitors": "idle timer"},
    "inspect": {
        "sentences": "reasons",
        "sight": "snapshot",
        "skimmed": "summary",
        "spot": "cursor",
        "stretch": "page",
        "walk": "scanner",
    },
    "metrics": {"ails": "failures", "poke": "probe"},
    "model": {},
    "queue": {
        "door": "client",
        "doors": "clients",
        "misfit": "argument_error",
        "twin": "counterpart",
        "visiting": "for_operator",
    },
    "schedules": {
        "glance": "status",
        "peeked": "scan",
        "respelled": "normalised",
        "rhythm": "recurrence",
        "sendable": "as_bytes_if_needed",
        "spelling": "parser",
        "steer": "control",
    },
    "transitions": {
        "anew": "again",
        "firm": "unwrap",
        "misfit": "wrong_type",
        "tally": "add_to_total",
        "wish": "if_exists",
    },
    "worker": {
        "hungry": "ready",
        "insistence": "repeated interrupt",
        "outage": "availability",
        "overlooked": "to_check",
        "pump": "fetcher",
        "pumping": "fetching",
        "station": "queue worker",
        "steadily": "run_forever",
        "taker": "consumer",
        "stir": "wake",
        "vital": "queue health",
        "vitals": "health",
        "waker": "wake listener",
    },
}
"""Retired word → what to say instead, by the folder in which it was used. A word counts wherever it is part of a name:
`pump` in `Pump`, `pump_loop` and `pump.py`."""
IN_LUA = {"answer": "word, reply", "answers": "words, replies"}
"""Also in the text of scripts, including comments."""
WORDS = {word: instead for words in RETIRED.values() for word, instead in words.items()}
FREE = {"call", "signal", "limit"}
SCRIPTS = sorted(ROOT.rglob("*.lua"))
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ALIASES)


@cache
def parsed(path: Path) -> ast.Module:
    """Its source, parsed once for all tests."""
    return ast.parse(path.read_text())


def names(path: Path) -> Iterator[str]:
    """Every name that a module defines, binds or uses, and its own."""
    yield path.stem
    for node in ast.walk(parsed(path)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case _:
                pass


def parts(name: str) -> set[str]:
    """The words of a name, in lower case: `OnLoop._run_all` has on, loop, run and all."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def in_package(path: Path) -> str:
    """A file's path within the package."""
    return path.relative_to(ROOT).as_posix()


@for_each(FILES, name=in_package)
def test_no_name_has_a_retired_word(path: Path):
    found = {(name, word) for name in set(names(path)) for word in parts(name) & WORDS.keys()}

    assert not found, {f"{name}: instead of {word!r} say {WORDS[word]}" for name, word in found}


@for_each(SCRIPTS, name=in_package)
def test_no_script_has_a_retired_word(path: Path):
    retired = WORDS | IN_LUA
    found = {word for word in re.findall("[a-z]+", path.read_text().lower()) if word in retired}

    assert not found, {f"instead of {word!r} say {retired[word]}" for word in found}


@for_each([*FILES, *SCRIPTS], name=in_package)
def test_words_of_later_features_name_no_module_and_no_script(path: Path):
    assert path.stem not in FREE


def test_words_of_later_features_name_no_class():
    classes = [node.name for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]

    assert not {name for name in classes if name.lower() in FREE}


def test_no_two_classes_have_the_same_name():
    counted = Counter(node.name for path in FILES for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef))

    assert not [name for name, count in counted.items() if count > 1 and name != "Meta"]  # as Django calls options
