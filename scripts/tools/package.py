"""Build wheel and sdist, and check the result: contents, metadata, size, and that every public name exists.

    python -m scripts.tools.package [FOLDER]

If FOLDER is given, both are kept there. The exit code is 0 if everything holds, else 1, with one line per problem.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.message import Message
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MOST_BYTES: Final = 740_000
"""Maximum size of the wheel."""
EXTRAS: Final = {"dashboard": "schedq.dashboard:create_app", "tracing": "schedq.tracing:instrument()"}
"""What raises an error that names the extra when imported or called without it."""
_TRY_EVERY_NAME: Final = """
import schedq
missing = [name for name in schedq.__all__ if getattr(schedq, name, None) is None]
assert not missing, missing
from schedq.cli import main
import schedq.logs, schedq.metrics, schedq.testing
from schedq.metrics import QueueCollector
for extra, use in {extras!r}.items():
    module, _, name = use.partition(":")
    try:
        __import__(module)
        eval(name, vars(__import__("sys").modules[module]))
    except (ImportError, schedq.SchedqError) as error:
        assert f"pip install 'schedq[{{extra}}]'" in str(error), (extra, error)
    else:
        raise AssertionError(f"{{use}} works without its extra")
"""


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
    return wheel, sdist


def tracked(folder: str = "") -> set[str]:
    """Paths of the repository's files: tracked by git, or untracked but not ignored."""
    said = _run("git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "--", folder or ".")
    return {path for path in said.splitlines() if (ROOT / path).exists()}


def names_in_wheel(wheel: Path) -> set[str]:
    """Paths of its files, without the metadata folder."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


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
    package, repository = tracked("schedq"), tracked()
    return [
        *(f"the wheel lacks {name}" for name in sorted(package - wheel)),
        *(f"the wheel has {name}" for name in sorted(wheel - package)),
        *(f"the sdist lacks {name}" for name in sorted(repository - sdist - {".gitignore"})),
        *(f"the sdist has {name}" for name in sorted(sdist - repository - {"PKG-INFO", ".gitignore"})),
    ]


def of_metadata(message: Message) -> list[str]:
    """Licence, URLs and authors are present, and the description has no relative links."""
    problems = [f"no {field}" for field in ("License-Expression", "License-File", "Author") if not message[field]]
    addresses = {address.partition(",")[0] for address in message.get_all("Project-URL", [])}
    problems += [
        f"no URL for {name}" for name in ("Homepage", "Documentation", "Changelog", "Issues") if name not in addresses
    ]
    text = str(message.get_payload())
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
    """Without extras every public name is available, and a missing extra is named in the error."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", str(wheel))
    done = subprocess.run(
        [python, "-W", "error", "-c", _TRY_EVERY_NAME.format(extras=EXTRAS)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return [f"installed without extras: {done.stderr}"] if done.returncode else []


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
