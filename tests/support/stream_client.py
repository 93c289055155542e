"""The client of a stream, as a test wants it."""

from rioni.http.streaming.stream_context import StreamClient


class _Client(StreamClient):
    """One whose methods can be replaced."""


def client_with(**answers: object) -> StreamClient:
    """A client that is there, and answers what is given for some of its methods."""
    client = _Client()
    vars(client).update(answers)
    return client
