"""Problems of a package are reported before it is published."""

from __future__ import annotations

import ast
import base64
import bz2
import hashlib
import json
import sys
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from schedq import handbook
from schedq.dashboard import rendering
from schedq.errors import UsageError
from schedq.transitions import scripts
from scripts.tools import package, shortening
from scripts.tools.shortening import Public


def described(text: str = "See [the page](https://example.org/page.md) and [below](#below).") -> EmailMessage:
    message = EmailMessage()
    message["License-Expression"], message["License-File"], message["Author"] = "MIT", "schedq/LICENSE", "Ada"
    for name in ("Homepage", "Documentation", "Changelog", "Issues"):
        message["Project-URL"] = f"{name}, https://example.org"
    message.set_payload(text)
    return message


def test_files_that_are_missing_or_do_not_belong_there_are_named() -> None:
    wheel = {path for path in package.tracked("schedq") if not package.OF_DEVELOPERS.fullmatch(path)}
    wheel, sdist = wheel - {"schedq/LICENSE"}, package.tracked()

    assert package.of_contents(wheel, sdist) == []
    assert package.of_contents(
        wheel - {"schedq/py.typed"} | {"tests/conftest.py"}, sdist - {"README.md"} | {"a.log"}
    ) == [
        "the wheel lacks schedq/py.typed",
        "the wheel has tests/conftest.py",
        "the sdist lacks README.md",
        "the sdist has a.log",
    ]


def test_a_text_with_addresses_and_a_license_is_good() -> None:
    assert package.of_metadata(described()) == []


def test_links_that_lead_nowhere_on_a_package_index_are_named() -> None:
    assert package.of_metadata(described("![A queue](.github/queue.png) [guide](guide.md)")) == [
        "the description links to .github/queue.png",
        "the description links to guide.md",
    ]


def test_links_to_files_that_have_moved_are_named() -> None:
    places = ("https://raw.githubusercontent.com/schedq/schedq/main", "https://github.com/schedq/schedq/blob/main")
    text = f"![A queue]({places[0]}/.github/dashboard-queue.png) [a]({places[0]}/a.png) [b]({places[1]}/b.md#c)"

    assert package.of_metadata(described(text)) == [
        "the description links to a.png, which is not there",
        "the description links to b.md, which is not there",
    ]


def test_missing_metadata_is_named() -> None:
    message = described()
    del message["License-File"]
    del message["Project-URL"]

    assert package.of_metadata(message)[:2] == ["no License-File", "no URL for Homepage"]


def test_a_wheel_that_has_grown_is_named(tmp_path: Path) -> None:
    wheel = tmp_path / "schedq.whl"
    wheel.write_bytes(b"0" * package.MOST_BYTES)
    assert package.of_size(wheel) == []

    wheel.write_bytes(b"0" * (package.MOST_BYTES + 1))
    assert len(package.of_size(wheel)) == 1


def test_a_wheel_whose_types_are_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "SNIPPETS", tmp_path)
    (tmp_path / "right.py").write_text("import schedq\n\nsize: int = schedq.measured()\n")
    (tmp_path / "wrong.py").write_text("import schedq\n\nsize: str = schedq.SIZE  # E: it is an int\n")
    texts = {
        "good.whl": "SIZE = 1\ndef measured() -> int: return 2\n",
        "bad.whl": "SIZE = eval('1')\ndef measured(): return 2\n",
    }
    for name, text in texts.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("schedq/__init__.py", text)
            archive.writestr("schedq/py.typed", "")

    assert package.of_types(tmp_path / "good.whl", tmp_path / "good") == []
    assert package.of_types(tmp_path / "bad.whl", tmp_path / "bad") == [
        "mypy does not report wrong.py:3 with the wheel's types",
        "mypy reports right.py:3 with the wheel's types",
    ]


def test_an_extra_is_tested_with_its_own_packages_and_nothing_else(tmp_path: Path) -> None:
    folder = package.link_extra("metrics", tmp_path)

    assert (folder / "prometheus_client" / "__init__.py").is_file()
    assert sorted(path.name for path in folder.iterdir() if not path.name.endswith("-info")) == ["prometheus_client"]


def test_what_an_extra_needs_is_read_from_the_metadata() -> None:
    assert list(package.requirements("schedq", "fast")) == [("uvloop", frozenset())]
    assert list(package.requirements("schedq", "tracing")) == [("opentelemetry-api", frozenset())]


INSIDE: dict[str, tuple[str, ...]] = {
    "schedq/handbook/pages.json.bz2": ("index.md", "jobs.md", "life-of-a-job.svg"),
    "schedq/dashboard/files.json.bz2": ("templates/base.html", "static/icon.svg"),
    "schedq/scripts.json": ("transitions/claim.lua", "transitions/shared/clock.lua", "inspect/stats.lua"),
}


@pytest.mark.parametrize("name", package.PACKED)
def test_many_texts_of_a_wheel_are_one_file_and_its_list_of_files_is_right(name: str) -> None:
    texts = {inside: f"# {inside} – text\n" for inside in INSIDE[name]}
    paths = [f"{Path(name).parent}/{inside}" for inside in texts]
    files = {**dict(zip(paths, texts.values(), strict=True)), "schedq/logs.py": "", "schedq-1.dist-info/RECORD": ""}
    empty = base64.urlsafe_b64encode(hashlib.sha256(b"").digest()).rstrip(b"=").decode()
    kept = [f"schedq/logs.py,sha256={empty},0", "schedq-1.dist-info/RECORD,,"]
    files["schedq-1.dist-info/RECORD"] = "".join(
        f"{line}\n" for line in [*(f"{path},sha256=x,1" for path in paths), *kept]
    )
    built = {zipfile.ZipInfo(path): text.encode() for path, text in files.items()}

    found = package.recorded(package.packed(built, name, package.PACKED[name]))

    data = {file.filename: content for file, content in found.items()}
    assert set(data) == {"schedq/logs.py", "schedq-1.dist-info/RECORD", name}
    assert package.texts_in(name, data[name]) == texts
    digest = base64.urlsafe_b64encode(hashlib.sha256(data[name]).digest()).rstrip(b"=").decode()
    listed = data["schedq-1.dist-info/RECORD"].decode().splitlines()
    assert listed == [f"{name},sha256={digest},{len(data[name])}", *kept]


def test_a_wheel_has_links_to_the_repository_instead_of_pages_for_developers() -> None:
    text = "See [jobs](jobs.md#ids) and [how it works](architecture.md#walks), [tests](tests-of-schedq.md)."

    found = package._shortened("jobs.md", text.encode())

    folder = "https://github.com/schedq/schedq/blob/main/schedq/handbook"
    assert found == (
        f"See [jobs](jobs.md#ids) and [how it works]({folder}/architecture.md#walks), "
        f"[tests]({folder}/tests-of-schedq.md)."
    )


def test_pages_are_read_from_one_file_if_they_are_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pages.json.bz2").write_bytes(bz2.compress(json.dumps({"jobs.md": "# Jobs\n"}).encode()))
    monkeypatch.setattr(handbook, "FOLDER", tmp_path)
    handbook._packed.cache_clear()
    try:
        assert handbook.read("jobs") == "# Jobs\n"
        handbook._packed.cache_clear()
        monkeypatch.setitem(sys.modules, "bz2", None)
        with pytest.raises(UsageError, match="built without bz2"):
            handbook.read("jobs")
    finally:
        handbook._packed.cache_clear()


def test_templates_are_read_from_one_file_if_they_are_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(rendering.__file__).parent
    texts = {f"templates/{path.name}": path.read_text() for path in (folder / "templates").iterdir()}
    texts |= {"templates/message.html": "<p>{{ text }}</p>", "static/dashboard.js": "live()"}
    (tmp_path / "files.json.bz2").write_bytes(bz2.compress(json.dumps(texts).encode()))
    monkeypatch.setattr("schedq.dashboard.rendering.resources.files", lambda _: tmp_path)

    page = rendering.Renderer().page(rendering.PageData("message.html", {"text": "<b>"}))

    assert page == "<p>&lt;b&gt;</p>"
    assert {name: (file.body, file.media) for name, file in rendering.static_files().items()} == {
        "dashboard.js": (b"live()", "text/javascript")
    }
    monkeypatch.setitem(sys.modules, "bz2", None)
    with pytest.raises(UsageError, match="built without bz2"):
        rendering.Renderer()


def test_scripts_are_read_from_one_file_if_they_are_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"transitions/claim.lua": "claim", "transitions/shared/clock.lua": "clock", "inspect/stats.lua": "stats"}
    (tmp_path / "scripts.json").write_text(json.dumps(texts))
    monkeypatch.setattr(scripts, "_PACKAGE", tmp_path)
    scripts._packed.cache_clear()
    try:
        assert [scripts.text(name) for name in ("claim", "shared/clock", "stats")] == ["claim", "clock", "stats"]
        with pytest.raises(LookupError, match=r"no script gone\.lua"):
            scripts.text("gone")
    finally:
        scripts._packed.cache_clear()


def test_scripts_of_a_wheel_are_without_comments_and_redis_gets_the_same() -> None:
    folder = package.ROOT / "schedq"
    texts = {path: path.read_text() for path in sorted(folder.rglob("*.lua"))}

    short = {path: package._shortened(path.name, text.encode()) for path, text in texts.items()}

    assert [path for path, text in texts.items() if [*scripts._code(text)] != [*scripts._code(short[path])]] == []
    assert [line for text in short.values() for line in text.splitlines() if " --" in line] == []


SOURCE = '''"""A module."""

from typing import Final  # for constants

LIMIT: Final = 5  # at most
"""What it means."""
MARK = "# not a comment"


class Queue:
    """A queue.

    Attributes:
        name: its name.
    """

    def enqueue(self) -> int:
        """Enqueue."""
        # why
        return 1

    def _check(self) -> None:
        """Check."""


class Verbs:
    """What queues inherit."""

    def enqueue(self) -> None:
        """The name alone is public."""

        def check() -> None:
            """Check."""

        check()
'''


def test_a_file_of_the_wheel_keeps_its_code_its_lines_and_the_help_of_public_names() -> None:
    found = shortening.shortened("schedq/queue/queue.py", SOURCE, PUBLIC)

    assert [line for line in found.splitlines() if '""' in line] == [
        ' """A queue.',
        '    """',
        '  """Enqueue."""',
        '  ""',
        '  """The name alone is public."""',
        '   ""',
    ]
    assert "#" not in found.replace("# not a comment", "")
    assert [_place(each)[1:] for each in _definitions(found)] == [_place(each, 4)[1:] for each in _definitions(SOURCE)]
    assert found.count("\n") == SOURCE.count("\n")


PUBLIC = Public.of("- `Queue(name)`: a queue\n    - `.enqueue(payload)`: enqueue\n")._replace(
    bases=frozenset({"Verbs"})
)
TYPED = '''
_LIMIT: int = 3
NAMES: dict[str, int] = {}


class Queue:
    number: int = 0

    def enqueue(self, payload: object, *, delay: float = 0) -> str:
        def inner(one: int, *rest: str) -> None: ...

        found: list[int] = [one for one in range(_LIMIT)]
        return (
            "a text\\n    of two lines"
            """
    with more"""
        )

    def _own(
        self,
        one: dict[
            str, int
        ],
        two: int = 1,
    ) -> list[int]: ...


def settle(queue: Queue) -> None: ...
'''


def test_types_of_what_is_not_public_are_left_out() -> None:
    found = shortening.shortened("schedq/transitions/settle.py", TYPED, PUBLIC)

    assert "_LIMIT = 3" in found
    assert "NAMES = {}" in found
    assert " number: int = 0" in found
    assert " def enqueue(self, payload: object, *, delay: float = 0) -> str:" in found
    assert "  def inner(one, *rest): ..." in found
    assert "def settle(queue): ..." in found
    assert "dict[" not in found.partition("_own")[2]
    assert '"a text\\n    of two lines"' in found
    assert "\n    with more" in found
    assert [_place(each) for each in _definitions(found)] == [
        (name.replace("AnnAssign", "Assign") if line in (2, 3, 12) else name, line, column)
        for name, line, column in (_place(each, 4) for each in _definitions(TYPED))
    ]


SEEN = """
def verb(make: Callable[P, R]) -> Verb[P, R]:
    @wraps(make)
    def call(*args: P.args) -> R: ...


class Verbs:
    size: int = 0

    def __init__(self, name: str) -> None:
        self.name: str = name
        self._own: int = 1

    @verb
    def enqueue(self, payload: object) -> str: ...

    @property
    def last(self) -> int: ...


class Queue(Verbs): ...


class Slot:
    size: int = 0

    def __init__(self, name: str) -> None:
        self.name: str = name

    def __get__(self, owner: object, kind: type) -> int: ...

    def enqueue(self, payload: object) -> str: ...

    @property
    def last(self) -> int: ...

    @verb
    def more(self) -> int: ...


class Reports(Protocol):
    def report(self, text: str) -> int: ...
"""


def test_types_stay_where_a_type_checker_needs_them_for_public_names() -> None:
    public = PUBLIC.within([SEEN])
    found = shortening.shortened("schedq/queue/slot.py", SEEN, public).splitlines()

    assert (public.bases, public.decorators) == ({"Verbs"}, {"verb"})
    assert [line.strip() for line in found if "Slot" not in line and ":" in line] == [
        "def verb(make: Callable[P, R]) -> Verb[P, R]:",
        "def call(*args): ...",
        "class Verbs:",
        "size: int = 0",
        "def __init__(self, name: str) -> None:",
        "self.name: str = name",
        "def enqueue(self, payload: object) -> str: ...",
        "def last(self) -> int: ...",
        "class Queue(Verbs): ...",
        "size: int = 0",
        "def __init__(self, name):",
        "def __get__(self, owner: object, kind: type) -> int: ...",
        "def enqueue(self, payload): ...",
        "def last(self): ...",
        "def more(self) -> int: ...",
        "class Reports(Protocol):",
        "def report(self, text: str) -> int: ...",
    ]
    assert "self._own = 1" in "\n".join(found)


def test_outside_of_the_internal_modules_types_of_every_class_stay() -> None:
    found = shortening.shortened("schedq/logs.py", SEEN, PUBLIC.within([SEEN]))

    seen = ("self.name: str = name", "def __init__(self, name: str) -> None:", "def last(self) -> int:")
    assert [found.count(each) for each in seen] == [2, 2, 2]


def _definitions(text: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt) and not _is_text(node)]


def _place(node: ast.stmt, spaces: int = 1) -> tuple[str, int, int]:
    return type(node).__name__, node.lineno, node.col_offset // spaces


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
