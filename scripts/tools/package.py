"""Build wheel and sdist, and check the result: contents, metadata, size, and that every public name exists.

    python -m scripts.tools.package [FOLDER]

If FOLDER is given, both are kept there. The exit code is 0 if everything holds, else 1, with one line per problem.
"""

from __future__ import annotations

import base64
import bz2
import copy
import email
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from zopfli import ZipFile

from scripts.tools.lua_names import with_short_names
from scripts.tools.shortening import Public, shortened, without_line_breaks
from scripts.tools.unused import without_unused

ROOT: Final = Path(__file__).resolve().parents[2]
Files = Mapping[zipfile.ZipInfo, bytes]
"""The files of a wheel, with their contents."""
MOST_BYTES: Final = 900_000
"""Maximum size of the wheel; it never grows. The code had 607 kB before the handbook was written. The pages, with
clearer texts in the code, added 85; dependencies of tasks and typed data 16; later features 57; Django 7; the
testing kit 16; what readers of the pages missed 11; `schedq dev` 3; threads in place of stuck ones 2; `run_isolated`
3; the outbox 11, of which smaller pictures save 6; hooks of processes that die 1; Django's outbox, admin and page
19; FastAPI, Flask and sessions of SQLAlchemy 10; unique jobs 6; gates 45; workflows 60; batches 30; what operators
see of both 18; notices and the archive 19; the finish of the command line 14; figures of tasks 6; the dashboard's
API 9, its pages across queues 10, those of tasks 12. Zopfli saves 22, one file for all pages 41, bz2 for it 29, one
file for all scripts 37, one for the dashboard's templates 12, static files in it and bz2 for it 3, scripts without
comments 22, pictures in the file of the pages 1, Python without comments, and without docstrings and types of
internals, 196, pages for developers in the repository only 12, with a space for each level 9 (see shortening.py),
and without what only these types used 10 (see unused.py), pages without line breaks in paragraphs 3, templates
without indentation and comments, line breaks as they are in the file of the scripts, and more rounds of Zopfli, 2."""
PACKED: Final = {
    "schedq/handbook/pages.json.bz2": re.compile(r"schedq/handbook/([\w-]+\.(?:md|svg))"),
    "schedq/dashboard/files.json.bz2": re.compile(r"schedq/dashboard/((?:templates|static)/\w+\.\w+)"),
    "schedq/scripts.json": re.compile(r"schedq/((?:transitions|schedules|inspect)/[\w/]+\.lua)"),
}
"""Files of a wheel that have the texts of many of the package's files, by their paths below the same folder.

Two are compressed with bz2, since nothing needs them to run a job: a Python may be built without bz2."""
OF_DEVELOPERS: Final = re.compile(
    r"schedq/handbook/(?:(?:architecture|how-gates-work|how-workflows-work|speed|tests-of-schedq)\.md|life-of-[\w-]+\.svg)"
)
"""Pages for those who work on schedq or compare it, and pictures: the wheel has links to the repository instead."""
_ABROAD: Final = "https://github.com/schedq/schedq/blob/main/"
SNIPPETS: Final = ROOT / "tests" / "laws" / "typing"
TRY: Final = ROOT / "scripts" / "tools" / "installed.py"
REPOSITORY: Final = r"https://(?:raw\.githubusercontent\.com/schedq/schedq|github\.com/schedq/schedq/blob)/main/"
"""Where files of the repository are for readers of the description."""
EXTRAS: Final = ("dashboard", "embedded", "metrics", "tracing")
"""Those with public names. `fast` has none, and `demo` is used in a checkout only."""


def main(arguments: list[str]) -> int:
    """Build into the folder or a temporary one, check, print the problems, and return the exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments[0]) if arguments else Path(temporary) / "dist"
        wheel, sdist = build(folder)
        problems = [
            *of_contents(names_in_wheel(wheel), names_in_sdist(sdist)),
            *of_metadata(metadata(wheel)),
            *of_size(wheel),
            *of_twine(wheel, sdist),
            *of_types(wheel, Path(temporary) / "unpacked"),
            *of_bare_environment(wheel, Path(temporary) / "bare"),
        ]
    for problem in problems:
        print(f"package: {problem}", file=sys.stderr)
    return 1 if problems else 0


def build(folder: Path) -> tuple[Path, Path]:
    """Build both from the checkout, and return their paths."""
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    compress(wheel)
    return wheel, sdist


def compress(wheel: Path) -> None:
    """Shorten the Python files, pack pages and scripts into a file each, and compress better than the build did.

    Every installer can still read the wheel.
    """
    smaller = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as built, ZipFile(smaller, "w", zipfile.ZIP_DEFLATED, iterations=15) as archive:
        found = [file for file in built.infolist() if not OF_DEVELOPERS.fullmatch(file.filename)]
        files: dict[zipfile.ZipInfo, bytes] = {file: built.read(file) for file in found}
        modules = {file: data.decode() for file, data in files.items() if file.filename.endswith(".py")}
        files |= {file: text.encode() for file, text in _shortened_modules(modules).items()}
        for name, pattern in PACKED.items():
            files = packed(files, name, pattern)
        for file, data in recorded(files).items():
            archive.writestr(file, data)
    smaller.replace(wheel)


def _shortened_modules(texts: Mapping[zipfile.ZipInfo, str]) -> dict[zipfile.ZipInfo, str]:
    """The texts of all Python files, shortened."""
    public = Public.of().within(texts.values())
    found = {file.filename: shortened(file.filename, text, public) for file, text in texts.items()}
    found = without_unused(found)
    return {file: found[file.filename] for file in texts}


def packed(files: Files, name: str, pattern: re.Pattern[str]) -> dict[zipfile.ZipInfo, bytes]:
    """Return the files of a wheel with one file for those of a pattern."""
    some = {file: data for file, data in files.items() if pattern.fullmatch(file.filename)}
    together = copy.copy(next(iter(some)))
    together.filename = name
    texts = {pattern.sub(r"\1", file.filename): _shortened(file.filename, data) for file, data in some.items()}
    if name.endswith("scripts.json"):
        texts = with_short_names(texts)
    text = json.dumps(texts, ensure_ascii=False)
    lines = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[0], text)  # smaller, except by bz2
    data = bz2.compress(text.encode()) if name.endswith(".bz2") else lines.encode()
    return {together: data, **{file: data for file, data in files.items() if file not in some}}


def recorded(files: Files) -> dict[zipfile.ZipInfo, bytes]:
    """Return the files of a wheel with a list of files that is right for them."""
    record = next(file for file in files if file.filename.endswith(".dist-info/RECORD"))
    lines = []
    for file, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{file.filename},,\n" if file is record else f"{file.filename},sha256={digest},{len(data)}\n")
    return {**files, record: "".join(lines).encode()}


def _shortened(name: str, data: bytes) -> str:
    """The text of a file; of a script only what Redis and `schedq.transitions.scripts` read, without explanations."""
    text = data.decode()
    if name.endswith(".md"):
        text = re.sub(r"\]\(([\w-]+\.md)", _link, text)
        rule = re.compile(r"^\|[ :|-]+\|$", re.MULTILINE)  # below the head of a table
        return rule.sub(lambda found: re.sub("-+", "-", found[0].replace(" ", "")), without_line_breaks(text))
    if name.endswith(".html"):
        return re.sub(r"^\s+", "", re.sub(r"\s*\{#.*?#\}\s*", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    if name.endswith((".js", ".css")):
        text = re.sub(r"^(\s*(//.*\n|/\*.*?\*/\n))*\s*", "", text, flags=re.MULTILINE)
        return re.sub(r"\s*([{};,])\s*", r"\1", text) if name.endswith(".css") else text
    if not name.endswith(".lua"):
        return text
    code = re.sub(r"--\[\[.*?\]\]", "", text, flags=re.DOTALL)
    lines = (line.strip() for line in code.split("\n"))
    kept = "\n".join(
        line if line.startswith("--@include ") else line.partition(" --")[0].rstrip()
        for line in lines
        if line and (not line.startswith("--") or line.startswith("--@include "))
    )
    head = re.match(r"--\[\[.*?\n(KEYS  .*?)\nReturns  ", text, re.DOTALL)
    if head is None:
        return f"{kept}\n"
    names = [line.partition(":")[0] for line in head[1].split("\n") if not line.startswith(" " * 7)]
    return "\n".join(["--[[", ".", "", *names, "Returns  .", "]]", kept, ""])


def _link(found: re.Match[str]) -> str:
    path = f"schedq/handbook/{found[1]}"
    return f"]({_ABROAD}{path}" if OF_DEVELOPERS.fullmatch(path) else found[0]


def tracked(folder: str = "") -> set[str]:
    """Paths of the repository's files: tracked by git, or untracked but not ignored."""
    said = _run("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", folder or ".")
    return {path for path in said.splitlines() if (ROOT / path).exists()}


def names_in_wheel(wheel: Path) -> set[str]:
    """Paths of its files, without the metadata folder; those that are packed into one count as files."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {f"{Path(file).parent}/{name}" for file in PACKED for name in texts_in(file, archive.read(file))}
        return {name for name in archive.namelist() if ".dist-info/" not in name} - PACKED.keys() | inside


def texts_in(name: str, data: bytes) -> dict[str, str]:
    """The texts in a file of PACKED, by their paths."""
    texts: dict[str, str] = json.loads(bz2.decompress(data) if name.endswith(".bz2") else data, strict=False)
    return texts


def names_in_sdist(sdist: Path) -> set[str]:
    """Paths of its files below its top folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def metadata(wheel: Path) -> Message:
    """What a package index shows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def of_contents(wheel: set[str], sdist: set[str]) -> list[str]:
    """The wheel contains exactly the package, and the sdist the whole repository."""
    repository = tracked()
    package = {path for path in tracked("schedq") if not OF_DEVELOPERS.fullmatch(path)}
    package -= {"schedq/LICENSE"}  # it is in the metadata
    return [
        *(f"the wheel lacks {name}" for name in sorted(package - wheel)),
        *(f"the wheel has {name}" for name in sorted(wheel - package)),
        *(f"the sdist lacks {name}" for name in sorted(repository - sdist - {".gitignore"})),
        *(f"the sdist has {name}" for name in sorted(sdist - repository - {"PKG-INFO", ".gitignore"})),
    ]


def of_metadata(message: Message) -> list[str]:
    """License, URLs and authors are present. Links of the description are absolute, and lead to files that exist."""
    problems = [f"no {field}" for field in ("License-Expression", "License-File", "Author") if not message[field]]
    addresses = {address.partition(",")[0] for address in message.get_all("Project-URL", [])}
    problems += [
        f"no URL for {name}" for name in ("Homepage", "Documentation", "Changelog", "Issues") if name not in addresses
    ]
    text = str(message.get_payload())
    files = re.findall(rf"{REPOSITORY}([^)#\s]*)", text)
    problems += [f"the description links to {path}, which is not there" for path in files if not (ROOT / path).exists()]
    problems += [f"the description links to {target}" for target in re.findall(r"\]\((?!https://|#)([^)]*)\)", text)]
    return problems


def of_size(wheel: Path) -> list[str]:
    """The wheel is below the size limit."""
    size = wheel.stat().st_size
    return [f"the wheel has {size:,} bytes, more than {MOST_BYTES:,}"] if size > MOST_BYTES else []


def of_twine(*files: Path) -> list[str]:
    """Twine accepts the metadata."""
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    return [done.stdout + done.stderr] if done.returncode else []


def of_types(wheel: Path, folder: Path) -> list[str]:
    """Type checkers see the types of public names: mypy reports wrong calls, and no right ones."""
    shutil.unpack_archive(wheel, folder, "zip")
    files = [SNIPPETS / "right.py", SNIPPETS / "wrong.py"]
    options = ("--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={ROOT / '.venv' / 'mypy-wheel'}")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, files)],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = set(re.findall(r"(\w+\.py:\d+): error", done.stdout))
    lines = ((path.name, *each) for path in files for each in enumerate(path.read_text().splitlines(), 1))
    wanted = {f"{name}:{number}" for name, number, line in lines if "# E: " in line}
    return [f"mypy does not report {place} with the wheel's types" for place in sorted(wanted - found)] + [
        f"mypy reports {place} with the wheel's types" for place in sorted(found - wanted)
    ]


def of_bare_environment(wheel: Path, folder: Path) -> list[str]:
    """Without extras every public name is available, and a missing extra is named; with an extra its names work."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check", "--no-input")
    _run(*pip, "install", str(wheel))
    problems = _tried(python, folder)
    for extra in EXTRAS:
        problems += _tried(python, link_extra(extra, folder / f"with-{extra}"), extra)
    return problems


def link_extra(extra: str, folder: Path) -> Path:
    """A folder with links to the files of what an extra installs, and of nothing else; the folder can be imported from.

    The files are those of this environment: installing each extra for the check would take longer than all the rest.
    """
    wanted, found = list(requirements("schedq", extra)), set[str]()
    while wanted:
        name, extras = wanted.pop()
        if name not in found:
            found.add(name)
            wanted += [each for some in extras or ("",) for each in requirements(name, some)]
    for name in found:
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).symlink_to(str(file.locate()))
    return folder


def requirements(name: str, extra: str) -> Iterator[tuple[str, frozenset[str]]]:
    """What a package that is installed here needs for an extra ('' for none): names, each with extras of its own."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        is_of_extra = marker is not None and not marker.evaluate({"extra": ""})
        if (marker is None or marker.evaluate({"extra": extra})) and (name != "schedq" or is_of_extra):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _tried(python: Path, folder: Path, *extra: str) -> list[str]:
    """Try the names of the package; packages of `folder` are there as well."""
    done = subprocess.run(
        [str(python), "-P", "-W", "error", str(TRY), *extra],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return [f"installed {' '.join(['with', *extra]) if extra else 'without extras'}: {done.stderr}"] * bool(
        done.returncode
    )


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
