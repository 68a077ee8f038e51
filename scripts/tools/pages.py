"""Follow the pages of the handbook as a reader would, and report what fails.

    python -m scripts.tools.pages [PAGE.md ...]

Each page runs in its own folder: files are saved, and blocks of Python and commands run in order, with servers in the
background until the end of the page. A failing command, or a server that exits unexpectedly, is an error of the page.
Skipped are blocks marked as fragments, commands that install packages, and redis-cli. The exit code is 0 if every page
works.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schedq.handbook import FOLDER
from scripts.tools.handbook import FIRST, CodeBlock, all_blocks, goes_on_from_first_job

ROOT: Final = FOLDER.parents[1]
LEFT_OUT: Final = ("pip install", "python -m venv", "redis-cli")
"""redis-cli is not installed everywhere; the test suite sends those commands itself."""
SERVERS: Final = re.compile(r"schedq (worker|exporter|promoter)\b(?!s)|uvicorn|flask")
"""Commands that run until they are stopped."""
AT_ONCE: Final = 3
READY_S: Final = 20.0
WITHIN_S: Final = 60.0


def main(names: list[str]) -> int:
    """Follow the pages, print what failed, and return the exit code."""
    chosen = [FOLDER / name for name in names] or sorted(FOLDER.glob("*.md"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        mistakes = [mistake for found in pool.map(read, chosen) for mistake in found]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    print(f"{len(chosen)} pages, {len(mistakes)} errors")
    return 1 if mistakes else 0


def read(page: Path) -> list[str]:
    """Follow one page and return its errors."""
    text = page.read_text()
    with reader(page.name, knows_first_job=goes_on_from_first_job(text)) as one:
        for block in all_blocks(text):
            if block.is_fragment:
                continue
            if block.path:
                one.save(block)
            elif block.language == "python":
                one.run_python(block.code)
            elif block.language == "sh":
                for line in block.code.splitlines():
                    one.run_command(re.sub(r"\s+#.*$", "", line).strip())
    return one.mistakes


@dataclass
class Reader:
    """A reader with a folder and a terminal.

    Attributes:
        servers: background processes, each with its output file.
    """

    page: str
    folder: Path
    environment: dict[str, str]
    mistakes: list[str] = field(default_factory=list)
    servers: list[tuple[str, subprocess.Popen[str], Path]] = field(default_factory=list)

    def save(self, block: CodeBlock) -> None:
        """Save a file; a module must be importable."""
        path = self.folder / block.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code)
        if block.language == "python" and not path.name.startswith("test_"):
            code = f"import runpy; runpy.run_path({block.path!r}, run_name='saved')"
            if "DJANGO_SETTINGS_MODULE" in self.environment:  # models are imported by name, after the setup
                code = f"import django; django.setup(); import {block.path.removesuffix('.py').replace('/', '.')}"
            self._run([sys.executable, "-c", code], block.path)

    def run_python(self, code: str) -> None:
        """Run a block as a program."""
        path = self.folder / f"block-{len(list(self.folder.glob('block-*.py')))}.py"
        path.write_text(code)
        self._run([sys.executable, path.name], code.strip().splitlines()[0])

    def run_command(self, line: str) -> None:
        """Run a line of shell."""
        if not line or line.startswith(LEFT_OUT):
            return
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif SERVERS.match(line) or line.endswith("&"):
            self._serve(line.rstrip("& "))
        else:
            self._run(line, line)

    def _serve(self, line: str) -> None:
        """Start a server; it replaces one started by the same command."""
        for said, process, _ in self.servers:
            if said == line:
                end(process)
        log = self.folder / f"server-{len(self.servers)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(  # noqa: S602 - the pages are ours, and a reader has a shell
                line,
                shell=True,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.servers.append((line, process, log))
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and process.poll() is None and not is_ready(log.read_text()):
            time.sleep(0.05)
        if process.poll() is not None:
            self.mistakes.append(f"{self.page}: {line}: ended with {process.returncode}: {log.read_text()[-1500:]}")

    def _run(self, command: str | list[str], named: str) -> None:
        try:
            done = subprocess.run(
                command,
                shell=isinstance(command, str),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self.mistakes.append(f"{self.page}: {named}: not finished within {WITHIN_S:.0f} s")
            return
        if done.returncode:
            self.mistakes.append(
                f"{self.page}: {named}: exit code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
            )


@contextmanager
def reader(page: str, *, knows_first_job: bool) -> Iterator[Reader]:
    """A reader who starts a page in a new folder; it contains the first page's `app.py` if the page needs it."""
    with tempfile.TemporaryDirectory(prefix="page-") as name:
        folder = Path(name)
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        paths = os.pathsep.join((str(folder), str(ROOT / "examples")))
        environment = os.environ | {"PATH": programs, "PYTHONPATH": paths, "REDIS_URL": "embedded://data"}
        environment.pop("SCHEDQ_REDIS_URL", None)
        one = Reader(page, folder, environment)
        if knows_first_job:
            one.save(next(block for block in all_blocks((FOLDER / FIRST).read_text()) if block.path))
        try:
            yield one
        finally:
            for _, process, _ in one.servers:
                end(process)
            subprocess.run(
                [sys.executable, "-m", "schedq", "server", "--stop", str(folder / "data")],
                env=environment,
                capture_output=True,
                check=False,
            )


def is_ready(said: str) -> bool:
    """Whether a server's output says that it is ready."""
    return any(words in said for words in ("ready for", "unning on http", "metrics of", "promoter of", "listening"))


def end(process: subprocess.Popen[str]) -> None:
    """Stop a server and its children, as Ctrl-C in a terminal does."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
