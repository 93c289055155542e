"""Requests and answers on a connection that speaks HTTP/1.1: h11, with requests and errors of httpx."""

import h11
import httpx


HEADERS_BYTES_MAX = 100_000
INTERIM_MAX = 100
"""Answers such as `100 Continue` before the one that counts."""


class Http11:
    """The state of a connection, which makes one request at a time. Does no I/O."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADERS_BYTES_MAX)
        self._interim = 0

    def encode(self, request: httpx.Request) -> bytes:
        """The bytes of a request; raises httpx.LocalProtocolError if it would not be one."""
        self._interim = 0
        try:
            target = request.url.raw_path
            head = self._http.send(h11.Request(method=request.method, target=target, headers=request.headers.raw))
            return head + self._http.send(h11.Data(request.content)) + self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as ex:
            raise httpx.LocalProtocolError(str(ex)) from ex

    def decode(self) -> h11.Event | None:
        """The next part of the answer: head, data or end; None if more has to be received.

        Raises:
            httpx.RemoteProtocolError: this is no answer.
        """
        try:
            while isinstance(event := self._http.next_event(), h11.InformationalResponse):
                self._interim += 1
                if self._interim >= INTERIM_MAX:
                    raise httpx.RemoteProtocolError("The server does not come to its answer")
        except h11.RemoteProtocolError as ex:
            raise httpx.RemoteProtocolError(str(ex)) from ex
        return None if isinstance(event, type) else event

    def receive(self, data: bytes) -> None:
        """Take received bytes; empty bytes mean that the server has closed the connection.

        Raises:
            httpx.RemoteProtocolError: it has not begun to answer.
        """
        if not data and self._http.their_state is h11.SEND_RESPONSE:
            raise httpx.RemoteProtocolError("The server closed the connection without an answer")
        self._http.receive_data(data)

    def begin_again(self) -> bool:
        """Make it ready for another request; returns whether it is."""
        done = self._http.our_state is self._http.their_state is h11.DONE
        if not done or self._http.trailing_data[0]:
            return False
        self._http.start_next_cycle()
        return True


def host_and_port(host: str, port: int) -> str:
    """A host and a port as URLs have them: addresses of version 6 are in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
