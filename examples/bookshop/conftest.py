import os
import tempfile
from collections.abc import Iterator

import pytest

os.environ["DATABASE_URL"] = f"sqlite:///{tempfile.mkdtemp()}/test.db"  # before the application is imported

from fastapi.testclient import TestClient

from bookshop.api import app
from bookshop.database import Base, engine


@pytest.fixture
def client(schedq_tester: object) -> Iterator[TestClient]:
    """The application with empty tables, an empty queue and virtual time."""
    Base.metadata.drop_all(engine)
    with TestClient(app) as client:
        yield client
