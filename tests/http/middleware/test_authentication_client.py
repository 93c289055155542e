"""Pools know for which client they work: a subject, or an address."""

from types import SimpleNamespace

import falcon
import falcon.testing
import pytest

from rioni.domain.access.authorization import Subject
from rioni.domain.ports.host import CLIENT
from rioni.http.caller import ANONYMOUS, ANYBODY, Caller
from rioni.http.middleware.authentication import AuthenticationMiddleware


ALICE = Caller(Subject(name="alice", realm="employees"))


@pytest.mark.parametrize(
    ("path", "caller", "client"),
    [
        ("/event-types", ALICE, ALICE.subject.key),
        ("/event-types", ANYBODY, "\n127.0.0.1"),
        ("/health", ALICE, "\n127.0.0.1"),
    ],
)
def test_requests_are_served_for_their_client(path, caller, client):
    req = falcon.testing.create_req(path=path)
    req.context.caller = ANONYMOUS
    before = []

    def authenticate(_header):
        before.append(CLIENT.get())
        return caller

    AuthenticationMiddleware(SimpleNamespace(caller=authenticate), None).process_request(req, falcon.Response())
    assert {*before} <= {"\n127.0.0.1"}
    assert CLIENT.get() == client
    CLIENT.set("")
