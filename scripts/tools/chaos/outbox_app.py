"""The application of `scripts/chaos --outbox`: orders that are written with their jobs, and relays."""

from __future__ import annotations

import os
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Final

from sqlalchemy import MetaData, String, create_engine, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from schedq import Queue, current_job
from schedq.integrations.sqlalchemy import Outbox

LIFE_S: Final = 3.0
"""How long the record of a finished job is kept."""
_ROLLBACK_SHARE: Final = 0.2


class Base(DeclarativeBase):
    """The tables."""

    metadata = MetaData()


class Order(Base):
    """An order, with the id of its job."""

    __tablename__ = "orders"

    number: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(64))


outbox = Outbox(Base.metadata)
engine = create_engine(os.environ["CHAOS_DATABASE"], pool_pre_ping=True)
queue = Queue(
    "orders",
    redis=os.environ["CHAOS_REDIS"],
    completed_ttl=LIFE_S,
    min_keep=LIFE_S,
    retry_for=LIFE_S - 1,
    log_size=20_000,
    completed_history=100_000,
)


@queue.task(max_attempts=1)
def confirm(number: str) -> None:
    """Note that the job runs, with one write."""
    line = f"{time.time():.6f} {current_job().id} {number}\n"
    with (Path(os.environ["CHAOS_FOLDER"]) / "runs").open("ab", buffering=0) as file:
        file.write(line.encode())


class Rollback(Exception):  # noqa: N818 - not an error
    """Ends a transaction without a commit."""


def produce(seed: int) -> None:
    """Write orders until killed."""
    draw = random.Random(seed)
    while True:
        number = uuid.uuid4().hex
        try:
            with Session(engine) as session, session.begin():
                job = outbox.enqueue(session, confirm, number)
                session.execute(insert(Order).values(number=number, job_id=job.id))
                if draw.random() < _ROLLBACK_SHARE:
                    raise Rollback
        except Rollback:
            pass
        except DBAPIError:
            time.sleep(0.2)  # the database is down; whether the commit arrived is open
        time.sleep(0.002)


def main() -> None:
    """Be a producer or a relay, as the arguments say."""
    role, seed = sys.argv[1:]
    if role == "producer":
        produce(int(seed))
    outbox.relay(engine, [queue], poll=0.1).run()


if __name__ == "__main__":
    main()
