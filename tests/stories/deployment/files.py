"""The deployment files of the handbook, and what they say."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from scripts.tools.handbook import all_blocks
from tests.pages import page

GRACE_S: Final = 30.0
"""`--grace` where a command does not say otherwise."""
_DURATION: Final = {"": 1, "s": 1, "m": 60, "min": 60}


def saved(name: str) -> dict[str, str]:
    """The files that a page tells its reader to save, by their paths."""
    return {block.path: block.code for block in all_blocks(page(name)) if block.path}


def save_all(files: dict[str, str], folder: Path) -> None:
    """Save them as a reader would."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def unit(name: str) -> configparser.ConfigParser:
    """A unit of systemd."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names are case-sensitive
    parser.read_string(saved("systemd.md")[name])
    return parser


def procfile() -> dict[str, str]:
    """The commands of the Procfile, by process type."""
    return dict(re.findall(r"^(\w+): (.+)$", saved("procfile.md")["Procfile"], re.MULTILINE))


def dockerfile(instruction: str) -> str:
    """The arguments of an instruction of the Dockerfile."""
    (found,) = re.findall(rf"^{instruction} (.+)$", saved("compose.md")["Dockerfile"], re.MULTILINE)
    return str(found)


def image_command() -> list[str]:
    """The image's CMD, in its list form."""
    words: list[str] = json.loads(dockerfile("CMD"))
    return words


def health_command() -> list[str]:
    """The image's HEALTHCHECK, in its list form."""
    words: list[str] = json.loads(dockerfile("HEALTHCHECK").partition("CMD ")[2])
    return words


def services() -> dict[str, Any]:
    """The services of the Compose file."""
    found: dict[str, Any] = yaml.safe_load(saved("compose.md")["compose.yaml"])["services"]
    return found


def resources(*kinds: str) -> list[dict[str, Any]]:
    """The Kubernetes resources of these kinds; of all if none is named."""
    texts = (text for name, text in saved("kubernetes.md").items() if name.endswith(".yaml"))
    documents = (document for text in texts for document in yaml.safe_load_all(text))
    return [document for document in documents if not kinds or document["kind"] in kinds]


def containers(name: str) -> dict[str, dict[str, Any]]:
    """The containers of a Kubernetes deployment, by name."""
    (found,) = (each for each in resources("Deployment") if each["metadata"]["name"] == name)
    return {container["name"]: container for container in found["spec"]["template"]["spec"]["containers"]}


def grace_s(command: str | list[str]) -> float:
    """How long the worker that a command starts gives its jobs."""
    words = shlex.split(command) if isinstance(command, str) else command
    return float(words[words.index("--grace") + 1]) if "--grace" in words else GRACE_S


def seconds(text: str) -> float:
    """A duration such as 40, 40s or 1m."""
    found = re.fullmatch(r"(\d+)(\w*)", text)
    assert found, text
    return float(found[1]) * _DURATION[found[2]]


def port_of(words: Sequence[str]) -> str:
    """The port that a command line names."""
    (found,) = re.findall(r"--(?:metrics-|health-)?port (\d+)", shlex.join(words))
    return str(found)
