"""The tables, and a session for each request and for each attempt of a job."""

import os

from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from schedq.integrations.sqlalchemy import Outbox, session_per_attempt


class Base(DeclarativeBase):
    """All tables."""


class Order(Base):
    """What a customer has ordered."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(20), default="new")


engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///bookshop.db"))
get_session = session_per_attempt(sessionmaker(engine))
outbox = Outbox(Base.metadata)
