"""The tables, the engine that lives as long as a process, and a session for each request or attempt."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated

from fastapi import Depends
from sqlalchemy import Engine, Numeric, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

URL = "DATABASE_URL"


class Base(DeclarativeBase):
    """All tables."""


class Order(Base):
    """What a customer of a tenant ordered."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(String(100), index=True)
    customer: Mapped[str] = mapped_column(String(200))
    amount: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    status: Mapped[str] = mapped_column(String(20), default="new")
    note: Mapped[str] = mapped_column(String(200), default="")


new_session = sessionmaker[Session]()


@contextmanager
def lifespan() -> Iterator[Engine]:
    """Open the database for this process. The web application and each worker enter it once."""
    engine = create_engine(os.environ.get(URL, "sqlite:///orders.db"))
    Base.metadata.create_all(engine)
    new_session.configure(bind=engine)
    try:
        yield engine
    finally:
        engine.dispose()


def get_session() -> Iterator[Session]:
    """One transaction: committed at the end of the request or attempt, rolled back on an error."""
    with new_session.begin() as session:
        yield session


class Orders:
    """Where orders are kept. FastAPI and schedq both create it, from the same declaration."""

    def __init__(self, session: Annotated[Session, Depends(get_session)]) -> None:
        self.session = session

    def add(self, tenant: str, customer: str, amount: Decimal) -> Order:
        """Store a new order; it has its id afterwards."""
        order = Order(tenant=tenant, customer=customer, amount=amount)
        self.session.add(order)
        self.session.flush()
        return order

    def get(self, number: int, tenant: str) -> Order | None:
        """A tenant's order."""
        order = self.session.get(Order, number)
        return order if order is not None and order.tenant == tenant else None
