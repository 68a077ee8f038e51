"""Dependencies that were written for FastAPI work unchanged, and tests replace any dependency."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import fastapi
import pytest

from schedq import CurrentJob, Depends, UsageError, current_job
from schedq.testing import override, run_due
from tests.doors import Handle

SEEN: list[str] = []


class Settings:
    def __init__(self, name: str = "settings") -> None:
        self.name = name


async def session() -> AsyncIterator[str]:
    SEEN.append("+session")
    yield "session"
    SEEN.append("-session")


SessionDep = Annotated[str, fastapi.Depends(session)]


def repository(session: SessionDep, settings: Annotated[Settings, fastapi.Depends()]) -> str:
    return f"repository in {session} with {settings.name}"


def service(repository: str = fastapi.Depends(repository), own: Any = fastapi.Depends(object, use_cache=False)) -> str:
    return f"service on {repository}"


def paged(limit: int = fastapi.Query(10)) -> int:
    return limit


def test_dependencies_written_for_fastapi_work_unchanged(queue: Handle):
    SEEN.clear()

    @queue.task
    def plain(service: str = Depends(service)) -> str:
        return service

    @queue.task
    async def coro(service: str = Depends(service)) -> str:
        return service

    @queue.task(max_attempts=1)
    def wrong(limit: int = Depends(paged)) -> None: ...

    jobs, bad = [plain.enqueue(), coro.enqueue()], wrong.enqueue()
    run_due(queue.queue)

    assert [job.result(0) for job in jobs] == ["service on repository in session with settings"] * 2
    assert SEEN == ["+session", "-session"] * 2
    assert (
        "parameter 'limit' needs data of a web request, which a job does not have" in queue.fields(bad.id)["last_error"]
    )


# -- replaced in tests


def test_a_test_can_replace_a_dependency(queue: Handle):
    def database() -> str:
        return "real"

    def fake(job: CurrentJob = Depends(current_job)) -> Iterator[str]:
        yield f"fake of {job.task}"

    def users(database: str = Depends(database)) -> str:
        return f"users in {database}"

    @queue.task
    def plain(users: str = Depends(users)) -> str:
        return users

    def ran() -> Any:
        job = plain.enqueue()
        run_due(queue.queue)
        return job.result(0)

    with override(database, fake):
        assert ran() == "users in fake of plain"
        with override(database, lambda: "inner"):
            assert ran() == "users in inner"
        assert ran() == "users in fake of plain"
    assert ran() == "users in real"
    with pytest.raises(UsageError, match="override takes two functions"), override(database, "fake"):  # type: ignore[arg-type]
        pass
