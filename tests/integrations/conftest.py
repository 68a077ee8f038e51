"""The databases of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import OperationalError

from tests.integrations.databases import POSTGRES, postgres, postgres_folder
from tests.waiting import until


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: this was tested with SQLite only")
    with postgres(programs) as url:
        engine = create_engine(url)
        until(lambda: accepts(engine))
        engine.dispose()
        yield url


def accepts(engine: Engine) -> bool:
    try:
        engine.connect().close()
    except OperationalError:
        return False
    return True


@pytest.fixture(params=["sqlite", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    found: str = request.getfixturevalue("postgres_url")
    return found
