"""A password is changed on the server, and some seconds later in the file that the processes read."""

from __future__ import annotations

import os
import signal

import pytest

from tests.stories.processes import app
from tests.stories.processes.scene import Process
from tests.stories.processes.stage import MakeScene, Together

pytestmark = pytest.mark.processes
together = Together()
REFUSED = "rejects the user name or password"


@together()
def test_a_password_changed_on_the_server_first_ends_no_process_and_no_job(make_scene: MakeScene):
    scene = make_scene(visibility_ms=60_000)
    secret = scene.folder / "secret"
    secret.write_text("one\n")
    scene.client.execute_command("ACL", "SETUSER", "ada", "on", ">one", "~*", "&*", "+@all")
    login = {
        "SCHEDQ_REDIS_URL": f"redis://ada@127.0.0.1:{scene.server.port}/0",
        "SCHEDQ_REDIS_PASSWORD_FILE": str(secret),
    }
    worker = scene.worker("--no-promoter", **login)
    held = [scene.add("gated", "gate"), scene.add("gated_in_thread", "gate")]
    scene.until(lambda: scene.has_started(*held))
    fleet = scene.worker("--processes", "2", "--no-promoter", **login)
    # Until a child has claimed once, its parent takes a refusal for a wrong setting. The worker has 8 slots left, and
    # one child has 10: of 19 jobs each child has some.
    served = [scene.add("gated", "both") for _ in range(19)]
    scene.until(lambda: scene.has_started(*served))
    scene.open("both")
    scene.until(lambda: scene.is_completed(*served))
    promoter = scene.start("promoter", app.NAME, how=None, **login)
    scene.until(lambda: scene.is_alive(fleet, 2) and scene.client.exists(scene.queue.settings.keys.promoter))
    everybody: list[Process] = [worker, fleet, promoter]

    scene.client.execute_command("ACL", "SETUSER", "ada", "resetpass", ">two")
    scene.client.execute_command("CLIENT", "KILL", "USER", "ada")
    scene.until(lambda: all(REFUSED in process.log for process in everybody))
    scene.open("gate")
    os.kill(min(fleet.children), signal.SIGKILL)
    scene.until(lambda: [line for line in fleet.log.splitlines() if REFUSED in line and "a new one starts" in line])
    assert all(process.is_running for process in everybody)
    assert {scene.job(job_id).status for job_id in held} == {"processing"}

    secret.write_text("two\n")
    later = scene.add("brief", delay=0.1)
    scene.until(lambda: scene.is_completed(*held, later))
    scene.until(lambda: len(fleet.children) == 2)
    assert {scene.job(job_id).attempts for job_id in held} == {1}
    scene.until(lambda: all("back after" in process.log for process in everybody))
    assert "one" not in promoter.log.split()


@together()
def test_a_password_file_that_is_missing_ends_a_process_with_one_line(make_scene: MakeScene):
    scene = make_scene()
    missing = f"{scene.server.url}?password_file={scene.folder / 'nothing'}"
    roles = (("worker", "tests.stories.processes.app:queue"), ("promoter", app.NAME), ("stats", app.NAME))
    started = [scene.start(*words, SCHEDQ_REDIS_URL=missing) for words in roles]

    for process in started:
        assert process.code() == 1, process
        (line,) = [line for line in process.log.splitlines() if " INFO " not in line]
        assert f"the password file {scene.folder / 'nothing'} can't be read: No such file or directory" in line
