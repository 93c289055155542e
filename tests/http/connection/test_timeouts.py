import errno
import socket
import time

import pytest

from rioni.http.connection.timeouts import SMALL_BYTES, Deadlines, DeadlineSocket


DEADLINES = Deadlines(header_s=5, body_s=30, body_bytes_per_s=1_000)


class Client:
    """The other end of a socket: sends pieces at given times, and advances the time."""

    def __init__(self, *pieces):
        self.now_s = 100.0
        self._pieces = list(pieces)
        self.timeout_s = None

    def settimeout(self, timeout_s):
        self.timeout_s = timeout_s

    def recv(self, _size):
        after_s, data = self._pieces.pop(0)
        if self.timeout_s is not None and after_s > self.timeout_s:
            self.now_s += self.timeout_s
            raise TimeoutError
        self.now_s += after_s
        return data

    def fileno(self):
        return 7


def received(client, paced):
    """How many bytes are received before a timeout, and what that raises."""
    count = 0
    while True:
        try:
            count += len(paced.recv(65_536))
        except OSError as ex:
            return count, ex


def paced(*pieces):
    client = Client(*pieces)
    return client, DeadlineSocket(client, DEADLINES, lambda: client.now_s)


def test_a_connection_is_idle_until_a_request_begins():
    _, sock = paced(*[(0, b"x")] * 2)
    states = [sock.idle]
    sock.recv(1)
    states.append(sock.idle)
    sock.expect_body()
    states.append(sock.idle)
    sock.expect_request()
    states.append(sock.idle)
    assert states == [True, False, False, True]


def test_bytes_received_before_reading_is_shut_down_are_read():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sock = DeadlineSocket(ours, DEADLINES, time.monotonic)
        theirs.sendall(b"GET")
        sock.stop_reading()
        sock.stop_reading()
        assert (sock.recv(9), sock.recv(9)) == (b"GET", b"")


def test_a_client_may_be_idle_between_requests_but_must_send_its_headers_in_time():
    client, sock = paced((1_000, b"G"), *[(1, b"x")] * 10)
    count, error = received(client, sock)
    assert (count, error.errno, client.now_s) == (6, errno.ECONNRESET, 1_105)


def test_the_second_request_of_a_connection_has_as_much_time_as_the_first():
    client, sock = paced(*[(2, b"x")] * 9)
    for _ in range(3):
        assert sock.recv(1) + sock.recv(1) == b"xx"
        sock.expect_body()
        assert sock.recv(1) == b"x"
        sock.expect_request()
    assert client.now_s == 118


@pytest.mark.parametrize(
    ("pieces", "taken_s", "count"),
    [
        ([(1, b"x")] * 100, 30, 30),
        ([(31, b"x")], 30, 0),
        ([(0, b"x" * 100_000), (31, b"x")], 30, 100_000),
        ([(1, b"x" * 1_000)] * 200 + [(40, b"x")], 230, 200_000),
        ([(1, b"x" * 1_000)] * 40 + [(1, b"x")] * 40, 70, 40_030),
    ],
    ids=["drip", "pause", "pause after much", "steady", "steady and then a drip"],
)
def test_a_body_must_arrive_soon_or_fast(pieces, taken_s, count):
    """Reference operations#client-deadlines."""
    client, sock = paced(*pieces)
    sock.expect_body()
    received_bytes, error = received(client, sock)
    assert isinstance(error, TimeoutError)
    assert received_bytes == count
    assert client.now_s - 100 == pytest.approx(taken_s, abs=1.1)


def test_answers_have_their_own_deadline():
    client, sock = paced((0, b"x"))
    sock.recv(1)
    assert client.timeout_s == DEADLINES.body_s
    assert sock.fileno() == 7


class Buffer:
    """The other end of a socket that accepts a limited number of bytes at once, and records its calls."""

    def __init__(self, room):
        self._room = room
        self.sent = []

    def settimeout(self, _timeout_s):
        pass

    def send(self, data):
        self.sent.append(bytes(data[: self._room]))
        return len(self.sent[-1])

    def sendall(self, data):
        self.sent.append(bytes(data))


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([HEAD, b"{}"], [HEAD + b"{}"]),
        ([HEAD + b"{}"], [HEAD + b"{}"]),
        ([STREAM, b"1\r\nx\r\n"], [STREAM, b"1\r\nx\r\n"]),
        ([HEAD, b"{}", HEAD, b"[]"], [HEAD + b"{}", HEAD + b"[]"]),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], [b"HTTP/1.1 204 No Content\r\n\r\n"]),
    ],
)
def test_an_answer_of_known_length_is_sent_at_once_and_a_stream_piece_by_piece(written, expected):
    buffer = Buffer(room=1_000)
    sock = DeadlineSocket(buffer, DEADLINES, time.monotonic)
    for data in written:
        sock.sendall(data)
    assert buffer.sent == expected
    sock.flush()
    assert buffer.sent == expected


def test_a_head_without_a_body_is_sent_when_the_request_is_over():
    buffer = Buffer(room=1_000)
    sock = DeadlineSocket(buffer, DEADLINES, time.monotonic)
    sock.sendall(HEAD)
    assert buffer.sent == []
    sock.flush()
    sock.flush()
    assert buffer.sent == [HEAD]


@pytest.mark.parametrize("size", [0, 9, 10, 11, SMALL_BYTES, SMALL_BYTES + 1])
def test_everything_is_sent_however_little_fits_at_once(size):
    data = (bytes(range(256)) * 257)[:size]
    buffer = Buffer(room=10)
    DeadlineSocket(buffer, DEADLINES, time.monotonic).sendall(data)
    assert b"".join(buffer.sent) == data
