"""The names of the standard library that are used exist, and do what they did."""

import logging
import socket
import threading

from rioni.patches.standard_library import accept_descriptor, share_logging_with_threads


def test_the_lock_of_logging_is_the_one_that_loggers_take(monkeypatch):
    monkeypatch.setattr(logging, "_lock", logging._lock)
    share_logging_with_threads()
    made = threading.Thread(target=logging.getLogger, args=("rioni.test.patches",))
    with logging._lock:
        made.start()
        made.join(0.05)
        assert made.is_alive()
    made.join()


def test_an_accepted_descriptor_is_that_of_the_connection():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
        socket.socket(fileno=accept_descriptor(listener)) as accepted,
    ):
        client.sendall(b"a")
        assert accepted.recv(1) == b"a"
