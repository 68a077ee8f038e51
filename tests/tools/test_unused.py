"""What only types used that are not in the wheel is not in it either."""

from __future__ import annotations

import ast

import pytest

from scripts.tools.unused import without_unused

KEPT = {
    "code uses it": ("from enum import Enum", "class Level(Enum): ..."),
    "a type within quotes uses it": ("from enum import Enum", "X = cast('list[Enum]', 1)"),
    "a list of names has it": ("from schedq.jobs import Job", "__all__ = ['Job']"),
    "it is imported as itself": ("from schedq.jobs import Job as Job", ""),
    "the import has an effect": ("import os.path", ""),
    "it is imported if something is there": ("try:\n import bz2\nexcept ImportError:\n pass", ""),
    "a program may run only there": ("if TYPE_CHECKING:\n pass\nelse:\n import json", "TYPE_CHECKING"),
    "a type that stays uses it": ("from __future__ import annotations\nfrom enum import Enum", "def a(b: Enum): ..."),
    "a field uses it": ("from typing import Final", "class A:\n B: Final = 1"),
    "code uses the alias": ("Key = tuple[str, int]", "KEYS = (Key,)"),
    "making it may have an effect": ("KEYS = found()[0]", ""),
}
GONE = {
    "nothing uses it": "from enum import Enum",
    "only a docstring has it": "'An Enum.'\nfrom enum import Enum",
    "no types are left": "from __future__ import annotations\ndef a(b): ...",
    "a name is set only": "from enum import Enum\nEnum = 1",
    "it is imported for types only": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n from enum import Enum",
    "it is an alias of types": "from collections.abc import Callable\nMake = Callable[[int], str | None]",
    "it is a variable of types": "from typing import TypeVar\nT = TypeVar('T', bound=int)",
}


@pytest.mark.parametrize("why", KEPT)
def test_a_statement_stays_if(why: str) -> None:
    text = "\n".join(KEPT[why]) + "\n"

    assert without_unused({"schedq/a.py": text}) == {"schedq/a.py": text}


@pytest.mark.parametrize("why", GONE)
def test_a_statement_goes_if(why: str) -> None:
    found = without_unused({"schedq/a.py": GONE[why] + "\n"})["schedq/a.py"]

    kept = [node for node in ast.parse(found).body if not isinstance(node, ast.Expr | ast.FunctionDef)]
    assert [ast.unparse(node) for node in kept] == (["Enum = 1"] if why == "a name is set only" else [])
    assert found.count("\n") == GONE[why].count("\n") + 1


def test_what_is_left_of_an_import_is_on_its_first_line() -> None:
    text = "from typing import (\n Any,\n Final as Constant,\n cast,\n)\nimport json, os\n\ncast(Constant, json)\n"

    found = without_unused({"schedq/a.py": text})["schedq/a.py"]

    assert found == ("from typing import Final as Constant, cast\n\n\n\n\nimport json\n\ncast(Constant, json)\n")


def test_a_name_stays_as_long_as_another_module_takes_it_from_there() -> None:
    files = {
        "schedq/__init__.py": "from schedq.jobs import Job\n",
        "schedq/jobs.py": "from schedq.model import Job, Record, Size, times\nRecords = list[Record]\n",
        "schedq/model.py": "from schedq.units import Size, times\nclass Job: ...\nclass Record: ...\n",
        "schedq/cli.py": "from schedq import model\nimport schedq\nprint(model.times, schedq.Job)\n",
    }

    assert without_unused(files) == files | {
        "schedq/jobs.py": "from schedq.model import Job, times\n\n",
        "schedq/model.py": "from schedq.units import times\nclass Job: ...\nclass Record: ...\n",
    }
