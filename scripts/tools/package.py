"""Build wheel and sdist, and check the result: contents, metadata, size, and that every public name exists.

    python -m scripts.tools.package [FOLDER]

If FOLDER is given, both are kept there. The exit code is 0 if everything holds, else 1, with one line per problem.
"""

from __future__ import annotations

import base64
import copy
import email
import hashlib
import json
import os
import re
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

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_BYTES: Final = 900_000
"""Maximum size of the wheel. The code had 607 kB before the handbook was written. The pages, with clearer texts in the
code, added 85; dependencies of tasks and typed data 16; later features 57; Django 7; the testing kit 16; what readers
of the pages missed 11; `schedq dev` 3; threads in place of stuck ones 2; `run_isolated` 3; the outbox 11, of which
smaller pictures save 6; hooks of processes that die 1; FastAPI, Flask and sessions of SQLAlchemy 10. Zopfli saves 25,
and one file for all pages 41. A feature raises the limit by what it adds, up to 900 kB. Compressed, Python has 583 kB
(a quarter of it docstrings), the handbook 122, Lua 60, the archive's own directory 48 and its list of files 16."""
PAGES: Final = "schedq/handbook/pages.json"
PAGE: Final = re.compile(r"schedq/handbook/[\w-]+\.md")
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
    """Pack the pages of a wheel into one file, and compress its files better than the build did.

    Every installer can still read them. One file for all pages saves 41 kB.
    """
    smaller = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as built, ZipFile(smaller, "w", zipfile.ZIP_DEFLATED, iterations=15) as archive:
        files = {file: built.read(file) for file in built.infolist()}
        for file, data in packed(files).items():
            archive.writestr(file, data)
    smaller.replace(wheel)


def packed(files: Mapping[zipfile.ZipInfo, bytes]) -> dict[zipfile.ZipInfo, bytes]:
    """Return the files of a wheel with one file for all pages, and with a list of files that is right for it."""
    pages = {file: data for file, data in files.items() if PAGE.fullmatch(file.filename)}
    others = {file: data for file, data in files.items() if file not in pages}
    record = next(file for file in others if file.filename.endswith(".dist-info/RECORD"))
    together = copy.copy(next(iter(pages)))
    together.filename = PAGES
    text = json.dumps({Path(file.filename).stem: data.decode() for file, data in pages.items()}, ensure_ascii=False)
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    names = {file.filename for file in pages}
    lines = [line for line in others.pop(record).decode().splitlines() if line.partition(",")[0] not in names]
    lines.insert(0, f"{PAGES},sha256={digest},{len(text.encode())}")
    return {**others, together: text.encode(), record: "".join(f"{line}\n" for line in lines).encode()}


def tracked(folder: str = "") -> set[str]:
    """Paths of the repository's files: tracked by git, or untracked but not ignored."""
    said = _run("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", folder or ".")
    return {path for path in said.splitlines() if (ROOT / path).exists()}


def names_in_wheel(wheel: Path) -> set[str]:
    """Paths of its files, without the metadata folder; each page counts as a file."""
    with zipfile.ZipFile(wheel) as archive:
        pages = {f"schedq/handbook/{name}.md" for name in json.loads(archive.read(PAGES))}
        return {name for name in archive.namelist() if ".dist-info/" not in name} - {PAGES} | pages


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
    package, repository = tracked("schedq") - {"schedq/LICENSE"}, tracked()  # the license is in the metadata
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
