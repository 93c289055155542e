"""The client of a stream, with the behaviour that a test needs."""

from rioni.http.streaming.stream_context import StreamClient


class _Client(StreamClient):
    """A client whose methods can be replaced."""


def client_with(**answers: object) -> StreamClient:
    """A connected client with the given results for some of its methods."""
    client = _Client()
    vars(client).update(answers)
    return client
