"""`python -m mandelbrot FILE WIDTH HEIGHT`: enqueue a picture and wait for it. The exit code is 1 if it failed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mandelbrot.tasks import render
from schedq import Progress, SchedqError


def show(progress: Progress) -> None:
    """Print a line for each report."""
    print(f"{progress.done:g} of {progress.total:g} rows", file=sys.stderr)


def main() -> int:
    """Run the script; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mandelbrot", description="Render a picture of the Mandelbrot set.")
    parser.add_argument("file", type=Path)
    parser.add_argument("width", type=int)
    parser.add_argument("height", type=int)
    wanted = parser.parse_args()
    job = render.enqueue(wanted.file.absolute(), wanted.width, wanted.height)
    try:
        job.wait(timeout=300, on_progress=show)
        size = job.result()
    except SchedqError as error:
        print(f"mandelbrot: {error}", file=sys.stderr)
        return 1
    print(f"{wanted.file}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
