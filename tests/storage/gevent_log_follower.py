"""A patched process, as `rioni serve` is: greenlets append to PostgreSQL in native threads, and follow the log.

Run as `python -m tests.storage.gevent_log_follower <url of a migrated database>`.
"""

from gevent import monkey


if __name__ == "__main__":
    monkey.patch_all()

import sys
import threading

import gevent

from rioni.sql.log_tables import HEAD
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine, writing
from tests.contracts.event_log import TOPICS, note, read_all


GREENLETS = 30
TICKS = 100
CONNECTIONS = 3


def main(url: str) -> None:
    pool = gevent.get_hub().threadpool
    engine, stranger = create_engine(url, connections_max=CONNECTIONS), create_engine(url)
    log, other = SqlEventLog(engine, TOPICS), SqlEventLog(create_engine(url), TOPICS)
    for each in (log, other):
        each.follow(lambda: None)
    while not all(each._head.trusted_position() == 0 for each in (log, other)):
        gevent.sleep(0.001)
    returned: list[int] = []

    def append(number: int) -> None:
        (entry,) = pool.apply(note, (log, f"stream {number}"))
        assert other.position() >= entry.position <= log.position()
        returned.append(entry.position)
        pool.apply(log.entries, (0, 10))

    greenlets = [threading.Thread(target=append, args=(number,)) for number in range(GREENLETS)]
    # Another process holds the write lock for a while.
    with writing(stranger) as connection:
        connection.execute(HEAD.select().with_for_update())
        for greenlet in greenlets:
            greenlet.start()
        for _ in range(TICKS):
            gevent.sleep(0.001)
            # More greenlets than connections wait for a position; those that know it already need no connection.
            assert log.position() == 0
            assert not returned
    for greenlet in greenlets:
        greenlet.join()

    assert sorted(returned) == [entry.position for entry in read_all(log)] == list(range(1, GREENLETS + 1))
    assert not list(verify(engine, TOPICS))
    for each in (log, other):
        each.close()
    stranger.dispose()
    sys.stdout.write("all is well\n")


if __name__ == "__main__":
    main(sys.argv[1])
