from collections.abc import Callable
from typing import Any

import pytest

from rioni.testing.server.faults import FAULTS_MAX, BadFault, Fault, Faults


class _Socket:
    def __init__(self):
        self.is_cut = False

    def cut(self):
        self.is_cut = True


class _Answer(list[bytes]):
    is_closed = False

    def close(self):
        self.is_closed = True


def _request(faults: Faults, method: str = "GET", path: str = "/event-types", **headers: str):
    """Return status, headers and body of the answer, whether the application processed it, and its socket."""
    processed = _Answer([b"answer"])
    calls = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]):
        calls.append(environ)
        start_response("200 OK", [])
        return processed

    said: list[Any] = [None, None]
    sock = _Socket()
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "gunicorn.socket": sock, **headers}
    try:
        body = b"".join(faults.around(app)(environ, lambda *args: said.__setitem__(slice(2), args)))
    except StopIteration:
        return None, None, None, bool(calls), sock
    return said[0], dict(said[1]), body, bool(calls), sock


def test_a_request_meets_the_first_fault_that_applies_to_it():
    faults = Faults()
    faults.add(Fault(status=503, method="POST"))
    faults.add(Fault(status=429, path="/event-*/x", retry_after_s=3))
    assert _request(faults)[0] == "200 OK"
    status, headers, body, *_ = _request(faults, path="/event-types/x")
    assert status == "429 Too Many Requests"
    assert headers == {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "Retry-After": "3",
    }
    status, _, body, is_processed, _ = _request(faults, method="POST")
    assert (status, is_processed) == ("503 Service Unavailable", False)
    assert b'"status":503' in body
    assert faults.clear() == 0


def test_requests_of_the_test_itself_meet_none():
    faults = Faults()
    faults.add(Fault(status=503))
    assert _request(faults, HTTP_RIONI_TESTING="broker")[0] == "200 OK"
    assert faults.clear() == 1


@pytest.mark.parametrize("processed", [False, True])
def test_a_dropped_request_is_processed_where_that_is_asked_for(processed: bool):
    faults = Faults()
    faults.add(Fault(drop=True, processed=processed, count=2))
    for _ in range(2):
        _, _, body, is_processed, sock = _request(faults)
        assert body is None
        assert sock.is_cut
        assert is_processed == processed
    assert _request(faults)[0] == "200 OK"


def test_there_are_not_more_faults_than_any_test_needs():
    faults = Faults()
    for _ in range(FAULTS_MAX):
        faults.add(Fault(status=503))
    with pytest.raises(BadFault, match=f"{FAULTS_MAX} faults"):
        faults.add(Fault(status=503))
