"""A patched process, as `rioni serve` is: greenlets append in native threads while another process has the lock.

Run as `python -m tests.storage.gevent_log_writer <url of an SQLite file>`.
"""

from gevent import monkey


if __name__ == "__main__":
    monkey.patch_all()

import fcntl
import os
import sys
import threading

import gevent

from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine, reading
from tests.contracts.event_log import TOPICS, note, read_all


GREENLETS = 30
TICKS = 100


def main(url: str) -> None:
    pool = gevent.get_hub().threadpool
    engine = create_engine(url)
    log = SqlEventLog(engine, TOPICS)

    # Another process holds the write lock for a while.
    fd = os.open(f"{engine.url.database}-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    returned: list[int] = []

    def append(number: int) -> None:
        returned.append(pool.apply(note, (log, f"stream {number}"))[0].position)
        pool.apply(log.entries, (0, 10))
        assert log.head().position >= returned[-1]

    greenlets = [threading.Thread(target=append, args=(number,)) for number in range(GREENLETS)]
    for greenlet in greenlets:
        greenlet.start()
    for _ in range(TICKS):
        gevent.sleep(0.001)
        assert log.head().position == 0
        assert not returned
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
    for greenlet in greenlets:
        greenlet.join()

    assert sorted(returned) == [entry.position for entry in read_all(log)] == list(range(1, GREENLETS + 1))
    assert not list(verify(engine, TOPICS))
    with reading(engine) as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    log.close()
    sys.stdout.write("all is well\n")


if __name__ == "__main__":
    main(sys.argv[1])
