"""Each deployment file of the handbook is valid for the tool that reads it, and its parts fit together."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schedq.cli.worker import worker
from tests.cases import for_each
from tests.stories.deployment import files
from tests.stories.deployment.files import GRACE_S, grace_s, seconds

PROGRAMS = Path(sys.executable).parent
UNITS = [name for name in files.saved("systemd.md") if name.endswith(".service")]


def program(name: str, extra: str = "dev") -> str:
    """Where a program is; skips the test if it is not installed."""
    found = shutil.which(name, path=str(PROGRAMS)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed ({extra})")
    return found


def run(*command: str, cwd: Path) -> tuple[int, str]:
    """Exit code and output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the reader has saved the files of all pages."""
    for page in ("systemd.md", "procfile.md", "compose.md", "kubernetes.md"):
        files.save_all(files.saved(page), tmp_path)
    return tmp_path


# -- each by its own tool


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_units(name: str, folder: Path) -> None:
    verify = program("systemd-analyze", "Debian: systemd")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "schedq").symlink_to(PROGRAMS / "schedq")
    path = folder / name
    path.write_text(path.read_text().replace("/srv/shop", str(folder)))

    code, said = run(verify, "verify", "--man=no", name, cwd=folder)

    assert (code, [line for line in said.splitlines() if name in line]) == (0, [])
    path.write_text(path.read_text().replace("Restart=", "Restarts="))
    assert f"{name}:" in run(verify, "verify", "--man=no", name, cwd=folder)[1]  # it would have reported it


def test_honcho_reads_the_procfile(folder: Path) -> None:
    code, said = run(program("honcho"), "check", cwd=folder)

    assert code == 0, said
    assert "Valid procfile detected (web, worker)" in said


def test_hadolint_finds_nothing_in_the_dockerfile(folder: Path) -> None:
    assert run(program("hadolint"), "Dockerfile", cwd=folder) == (0, "")


def test_the_compose_file_follows_the_compose_specification(folder: Path) -> None:
    check = program("check-jsonschema")

    code, said = run(check, "--builtin-schema", "vendor.compose-spec", "compose.yaml", cwd=folder)

    assert code == 0, said


def test_kubernetes_accepts_the_resources() -> None:
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("kubernetes-validate is not installed (dev)")
    import kubernetes_validate

    found = [each for each in files.resources() if not each["apiVersion"].startswith("keda.sh/")]

    assert len(found) == 3
    for resource in found:
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


# -- and what no tool can know


def test_the_grace_period_that_the_pages_assume_is_the_default() -> None:
    (option,) = (each for each in worker.params if each.name == "grace")

    assert option.default == GRACE_S


def test_every_supervisor_waits_for_longer_than_the_grace_period() -> None:
    pod = files.resources("Deployment")[0]["spec"]["template"]["spec"]
    service = files.unit("schedq-worker.service")["Service"]

    assert seconds(service["TimeoutStopSec"]) > grace_s(service["ExecStart"])
    assert pod["terminationGracePeriodSeconds"] > grace_s(pod["containers"][0]["args"])
    assert seconds(files.services()["worker"]["stop_grace_period"]) > grace_s(files.services()["worker"]["command"])
    assert grace_s(files.procfile()["worker"]) < 30  # Heroku's


def test_the_signal_reaches_the_worker_itself() -> None:
    """Through no shell; and once, although systemd would send it to the children too."""
    commands = [
        files.image_command(),
        *(service["command"] for service in files.services().values()),
        *(each["args"] for name in ("schedq-worker", "schedq-promoter") for each in files.containers(name).values()),
    ]

    assert all(isinstance(command, list) and command[0] != "sh" for command in commands)
    assert files.unit("schedq-worker.service")["Service"]["KillMode"] == "mixed"
    assert all("KillSignal" not in files.unit(name)["Service"] for name in UNITS)
    assert "STOPSIGNAL" not in files.saved("compose.md")["Dockerfile"]


def test_the_image_checks_health_where_its_worker_reports_it() -> None:
    """Other services would look unhealthy, so they disable the check."""
    port = files.port_of(files.image_command())

    assert files.port_of(files.health_command()) == port
    for name, service in files.services().items():
        if "build" in service:
            listens = f"--health-port {port}" in shlex.join(service["command"])
            assert listens != service.get("healthcheck", {}).get("disable", False), name


@for_each(files.resources("Deployment"), name=lambda each: each["metadata"]["name"])
def test_probes_and_prometheus_use_the_port_that_is_served(deployment: dict) -> None:
    template = deployment["spec"]["template"]
    annotated = template["metadata"]["annotations"]["prometheus.io/port"]

    (container,) = (each for each in template["spec"]["containers"] if "ports" in each)
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    probes = [container[name]["httpGet"]["port"] for name in ("readinessProbe", "livenessProbe") if name in container]

    assert probes
    assert {annotated, *(ports[name] for name in probes)} == {files.port_of(container["args"])}
    assert {"--host", "--metrics-host"} & set(container["args"])  # 127.0.0.1 would be reachable only within the pod


def test_selectors_match_the_pods() -> None:
    names = {each["metadata"]["name"] for each in files.resources("Deployment")}

    for each in files.resources("Deployment", "PodDisruptionBudget"):
        labels = each["spec"]["selector"]["matchLabels"]
        assert labels["app"] in names
        if each["kind"] == "Deployment":
            assert each["spec"]["template"]["metadata"]["labels"] == labels
    for each in files.resources("ScaledObject"):
        assert each["spec"]["scaleTargetRef"]["name"] in names


def test_a_container_that_must_not_run_as_root_has_a_user_by_number() -> None:
    pods = [each["spec"]["template"]["spec"] for each in files.resources("Deployment")]

    assert all(pod["securityContext"]["runAsNonRoot"] for pod in pods)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", files.dockerfile("USER"))


def test_the_image_has_the_extras_that_its_commands_need() -> None:
    extras = re.findall(r"\w+", files.saved("compose.md")["requirements.txt"].partition("[")[2])
    commands = [shlex.join(service["command"]) for service in files.services().values() if "build" in service]

    assert ("dashboard" in extras) == any(" dashboard " in command for command in commands)
    assert "metrics" in extras


def test_redis_evicts_nothing_in_the_compose_file() -> None:
    assert "noeviction" in files.services()["redis"]["command"]
