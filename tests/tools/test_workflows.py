"""GitHub's workflows: valid, and they do what the policies say."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
CHECK = Path(sys.executable).with_name("check-jsonschema")


def jobs(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())["jobs"]
    return found


def steps(job: dict[str, Any]) -> str:
    """What a job runs, and the actions that it uses, in order."""
    return "\n".join(step.get("run") or step["uses"] for step in job["steps"])


def test_they_follow_githubs_schema() -> None:
    if not CHECK.exists():
        pytest.skip("check-jsonschema is not installed")
    files = sorted(map(str, FOLDER.glob("*.yml")))

    done = subprocess.run(
        [CHECK, "--builtin-schema", "vendor.github-workflows", *files], capture_output=True, text=True, check=False
    )

    assert (len(files), done.returncode) == (2, 0), done.stdout


def test_everything_runs_on_each_python_that_the_package_names() -> None:
    (job,) = jobs("ci.yml").values()
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [
        each.rpartition(" ")[2] for each in classifiers if each.startswith("Programming Language :: Python :: 3.")
    ]

    assert job["strategy"]["matrix"]["python"] == [*versions, "3.14t"]  # free-threaded
    assert ".ci/run" in steps(job).splitlines()


def test_a_release_is_built_from_a_commit_that_passes() -> None:
    build = steps(jobs("release.yml")["build"])

    assert build.index(".ci/run") < build.index("scripts.tools.package dist") < build.index("actions/upload-artifact")


def test_a_release_is_published_without_a_stored_secret_attested_and_with_an_sbom() -> None:
    publish = jobs("release.yml")["publish"]
    done = steps(publish)

    assert publish["needs"] == "build"
    assert publish["permissions"]["id-token"] == publish["permissions"]["attestations"] == "write"
    assert "secrets." not in (FOLDER / "release.yml").read_text()
    for action in ("attest-build-provenance", "attest-sbom"):
        assert done.index(action) < done.index("pypa/gh-action-pypi-publish")
    assert "schedq.cdx.json" in done


def test_no_workflow_may_do_more_than_it_needs() -> None:
    for path in FOLDER.glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] <= 60
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False
