"""A patched process in which native threads open the first connections of a pool, most of which fail."""

from gevent import monkey


if __name__ == "__main__":
    monkey.patch_all()

import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import gevent
from sqlalchemy import Engine, event

from rioni.domain.errors import Unavailable
from rioni.storage.sql.engines import create_engine, reading
from tests.support.waiting import WAIT_S


THREADS, FAILURES = 6, 200


def main() -> None:
    # So often that threads are preempted while others open a connection.
    sys.setswitchinterval(0.000_05)
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{Path(folder, 'a.db')}")
        failed = [0]

        def fail(*_: object) -> None:
            failed[0] += 1
            if failed[0] < FAILURES:
                monkey.get_original("time", "sleep")(0.000_5)
                raise sqlite3.OperationalError

        event.listen(engine, "connect", fail)
        pool = gevent.get_hub().threadpool
        natives = [pool.spawn(read_at_last, engine) for _ in range(THREADS)]
        for each in natives:
            each.get(timeout=WAIT_S)
    sys.stdout.write("all is well\n")


def read_at_last(engine: Engine) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        try:
            with reading(engine):
                return
        except Unavailable:
            pass


if __name__ == "__main__":
    main()
