"""Finds native threads of a server that take locks which gevent has patched: who waits for one may wait for ever."""

import os
import sys
from collections.abc import Iterator
from types import FrameType

from gevent import monkey
from gevent.thread import LockType


FOUND = "a native thread takes a lock that gevent has patched: "
ALLOWED = {
    "prometheus_client/registry.py": "a registry is made for each request",
    "psycopg/": "one thread at a time uses a connection",
    "sqlalchemy/event/attr.py": "one thread at a time opens the first connection of a pool",
}
"""By a part of the file's path: why no other thread has the lock; it is reported if another one has."""
FRAMES_SHOWN = 8


def watch() -> None:
    """Report them on standard error from now on, also in processes that are forked."""
    get_ident = monkey.get_original("_thread", "get_ident")
    hub_threads = {get_ident()}
    os.register_at_fork(after_in_child=lambda: hub_threads.add(get_ident()))
    original = LockType.acquire
    reported = set()

    def acquire(lock: LockType, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and get_ident() not in hub_threads:
            places = list(_places(sys._getframe(1)))
            allowed = not lock.locked() and any(part in places[0] for part in ALLOWED)
            if not allowed and tuple(places) not in reported:
                reported.add(tuple(places))
                os.write(2, f"{FOUND}{' < '.join(places)}\n".encode())
        return original(lock, blocking, timeout)

    LockType.acquire = acquire
    LockType.__enter__ = acquire


def _places(frame: FrameType | None) -> Iterator[str]:
    """The innermost calls, beginning with what takes the lock."""
    count = 0
    while frame is not None and count < FRAMES_SHOWN:
        code = frame.f_code
        if code.co_filename != __file__:
            count += 1
            yield f"{code.co_filename}:{frame.f_lineno} {code.co_name}"
        frame = frame.f_back
