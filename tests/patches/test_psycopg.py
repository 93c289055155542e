"""A wait that takes too long raises the error that is caught."""

import inspect
import socket

import psycopg
import pytest
from psycopg import waiting

from rioni.patches.psycopg import LOOK_EVERY_S, DeadlineConnection


class _SilentServer:
    """Takes the place of a connection of libpq whose server does not answer."""

    status = psycopg.pq.ConnStatus.OK

    def __init__(self, descriptor):
        self.socket = descriptor

    def finish(self):
        self.status = psycopg.pq.ConnStatus.BAD


def test_the_interval_is_that_of_psycopg():
    assert inspect.signature(psycopg.Connection.wait).parameters["interval"].default == LOOK_EVERY_S


def test_a_wait_beyond_the_deadline_closes_the_connection():
    def answer():
        while True:
            yield waiting.Wait.R

    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = object.__new__(DeadlineConnection)
        connection.pgconn = _SilentServer(ours.fileno())
        connection.deadline_s = 0.01
        with pytest.raises(psycopg.OperationalError, match=r"no answer within 0\.01 s"):
            connection.wait(answer(), 0.005)
        assert connection.closed
