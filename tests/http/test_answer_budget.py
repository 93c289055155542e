"""Answers that clients have not read yet have a bound: reference common#answers-in-flight."""

import threading
from concurrent.futures import ThreadPoolExecutor
from wsgiref.util import setup_testing_defaults

import falcon
import pytest
from falcon import testing

from rioni.domain.errors import Overloaded
from rioni.http.answer_budget import (
    COUNTED_BYTES_MIN,
    SENT_BYTES,
    AnswerBudget,
    TooManyAnswers,
    hold_answer,
    released_when_sent,
)
from tests.support.waiting import WAIT_S


LARGE = b"x" * 300_000
DEADLINE_S = 20


@pytest.fixture
def budget():
    return AnswerBudget(worker_bytes_max=1_000_000, client_bytes_max=400_000)


class Resource:
    def __init__(self):
        self.body = LARGE

    def on_get(self, _req, resp):
        resp.data = self.body
        resp.etag = "tag"

    on_post = on_get


class Middleware:
    def __init__(self, budget):
        self._budget = budget

    def process_response(self, req, resp, _resource, _ok):
        hold_answer(req, resp, self._budget, lambda req: req.get_header("Client"))


@pytest.fixture
def resource():
    return Resource()


@pytest.fixture
def ask(budget, resource):
    """Begins a request; the body of the answer is read by its iterator."""
    app = falcon.App(middleware=[Middleware(budget)])
    app.add_route("/", resource)
    served = released_when_sent(app)

    def ask(client, method="GET"):
        environ = testing.create_environ("/", method=method, headers={"Client": client})
        setup_testing_defaults(environ)
        answered = []
        body = served(environ, lambda status, headers: answered.extend((status, dict(headers))))
        return answered[0], answered[1], body

    return ask


def test_answers_count_from_when_they_are_made_until_they_are_sent(ask, budget):
    status, _, body = ask("shop")
    assert status == falcon.HTTP_200
    assert budget.held == len(LARGE)
    assert b"".join(body) == LARGE
    body.close()
    body.close()
    assert budget.held == 0


def test_an_answer_that_is_never_sent_counts_no_longer_than_it_exists(ask, budget):
    _, _, body = ask("shop")
    del body
    assert budget.held == 0


def test_large_answers_are_sent_in_pieces(ask):
    _, headers, body = ask("shop")
    assert {len(piece) for piece in body} == {SENT_BYTES, len(LARGE) % SENT_BYTES}
    assert headers["content-length"] == str(len(LARGE))


def test_small_answers_are_not_counted(ask, budget, resource):
    resource.body = b"x" * (COUNTED_BYTES_MIN - 1)
    unread = [ask("shop") for _ in range(50)]
    assert budget.held == 0
    assert {status for status, _, _ in unread} == {falcon.HTTP_200}


def test_a_client_that_does_not_read_gets_429_and_others_get_their_answers(ask):
    unread = ask("shop")
    status, headers, body = ask("shop")
    assert (status, headers["retry-after"]) == (falcon.HTTP_429, "5")
    assert b"has not read" in b"".join(body)
    assert "etag" not in headers
    assert ask("other")[0] == falcon.HTTP_200
    unread[2].close()
    assert ask("shop")[0] == falcon.HTTP_200


def test_many_clients_that_do_not_read_are_answered_503(ask):
    unread = [ask(f"client {number}") for number in range(3)]
    assert {status for status, _, _ in unread} == {falcon.HTTP_200}
    status, headers, _ = ask("another")
    assert (status, headers["retry-after"]) == (falcon.HTTP_503, "5")


def test_changes_are_answered_whatever_is_unread_because_they_are_made(ask, budget):
    unread = [ask("shop", "POST") for _ in range(5)]
    assert {status for status, _, _ in unread} == {falcon.HTTP_200}
    assert budget.held == 5 * len(LARGE)


def test_a_client_leaves_as_much_as_it_has_for_others():
    budget = AnswerBudget(worker_bytes_max=1_000_000, client_bytes_max=1_000_000)
    kept = [budget.reserve("shop", 50_000) for _ in range(10)]
    with pytest.raises(TooManyAnswers):
        budget.reserve("shop", 50_000)
    assert budget.reserve("other", 400_000)
    del kept


def test_a_client_that_has_nothing_unread_gets_an_answer_of_any_size(budget):
    held = budget.reserve("shop", 5_000_000)
    with pytest.raises(TooManyAnswers):
        budget.reserve("shop", 1)
    held.release()
    assert budget.held == 0


def test_a_list_waits_until_others_are_read(budget):
    held, begun = budget.reserve("shop", 400_000), threading.Event()

    def reserve():
        begun.set()
        return budget.reserve("shop", 100_000, wait_s=DEADLINE_S)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(reserve)
        assert begun.wait(WAIT_S)
        assert not waiting.done()
        held.release()
        assert waiting.result(WAIT_S)
        assert budget.held == 100_000


def test_waiting_ends_at_its_deadline(budget):
    kept = budget.reserve("shop", 400_000), budget.reserve("other", 400_000)
    with pytest.raises(TooManyAnswers):
        budget.reserve("shop", 1, wait_s=0.01)
    with pytest.raises(Overloaded):
        budget.reserve("third", 300_000, wait_s=0.01)
    assert budget.held == 800_000
    del kept
