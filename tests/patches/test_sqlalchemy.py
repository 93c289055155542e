"""SQLAlchemy takes connections by the methods that are replaced, and brings them back."""

import sqlite3

from sqlalchemy import create_engine, event, text
from sqlalchemy.pool import ConnectionPoolEntry

from rioni.patches.sqlalchemy import HookedPool


class _Pool(HookedPool):
    def __init__(self, creator, **options):
        super().__init__(creator, **options)
        self._arguments = {"creator": creator, **options}
        self.taken, self.kept = 0, []

    def take(self):
        self.taken += 1
        return self.kept.pop() if self.kept else self.open_connection()

    def put_back(self, record):
        self.kept.append(record)

    def recreate(self):
        return _Pool(**self._arguments | self.recreated_options())

    def dispose(self):
        while self.kept:
            self.kept.pop().close()


def test_connections_are_taken_and_put_back_also_after_the_pool_was_recreated():
    opened = []
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(":memory:"), poolclass=_Pool)
    event.listen(engine, "connect", lambda *_: opened.append(1))
    for before in (1, 2):
        for _ in range(2):
            with engine.connect() as connection:
                assert connection.scalar(text("SELECT 1")) == 1
        (kept,) = engine.pool.kept
        assert isinstance(kept, ConnectionPoolEntry)
        assert (engine.pool.taken, len(opened)) == (2, before)
        engine.dispose()
