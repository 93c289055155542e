"""Lists are sent in pieces: reference common#long-lists."""

import gzip
import json

import falcon
import pytest
from falcon import testing

from rioni.http.answer_budget import AnswerBudget, TooManyAnswers
from rioni.http.answers import HELD_BYTES, answer_list
from rioni.http.caller import ANYBODY
from rioni.projections.queries.past import piece


class Lists:
    """A resource that lists a number of items of 1 kB, and remembers the items read."""

    def __init__(self, budget):
        self.budget, self.count, self.gone, self.read = budget, 0, set(), []

    def on_get(self, req, resp):
        req.context.caller = ANYBODY
        tail = lambda: b'],"next":%d}' % self.count  # noqa: E731
        answer_list(req, resp, self.budget, range(self.count), self._piece, head=b'{"items":[', tail=tail)

    def _piece(self, keys):
        def read(some):
            self.read += some
            return {key: f'{{"n":{key},"text":"{"x" * 1_000}"}}'.encode() for key in some if key not in self.gone}

        return piece(read, keys)


@pytest.fixture
def lists():
    return Lists(AnswerBudget(worker_bytes_max=4 * HELD_BYTES, client_bytes_max=2 * HELD_BYTES))


@pytest.fixture
def client(lists):
    app = falcon.App()
    app.add_route("/", lists)
    return testing.TestClient(app)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 258, 519, 1_000, 10_000])
def test_lists_of_any_length_have_every_item_once_in_order(client, lists, count):
    lists.count = count
    answer = client.simulate_get("/")
    assert [item["n"] for item in answer.json["items"]] == [*range(count)]
    assert answer.json["next"] == count
    assert lists.budget.held == 0


def test_items_that_are_gone_meanwhile_are_left_out(client, lists):
    lists.count, lists.gone = 2_000, {*range(500), *range(700, 1_100), 1_999}
    assert [item["n"] for item in client.simulate_get("/").json["items"]] == [
        number for number in range(2_000) if number not in lists.gone
    ]


def test_long_lists_are_compressed_for_those_who_take_that(client, lists):
    lists.count = 2_000
    answer = client.simulate_get("/", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(answer.content))["items"]) == 2_000


def test_what_is_not_asked_for_yet_is_not_read(lists):
    lists.count = 10_000
    body = begun(lists)
    assert next(body).startswith(b'{"items":[{"n":0,')
    assert len(lists.read) < 1_000
    assert lists.budget.held == HELD_BYTES
    body.close()
    assert lists.budget.held == 0


def begun(lists):
    """The body of a list of which nothing was taken yet."""
    lists.read.clear()
    resp = falcon.Response()
    lists.on_get(falcon.Request(testing.create_environ("/")), resp)
    return resp.stream


def test_a_client_can_leave_so_many_long_lists_unread_and_gets_429_for_more(lists, monkeypatch):
    monkeypatch.setattr("rioni.http.answers.WAIT_S", 0.01)
    lists.count = 10_000
    unread = [begun(lists), begun(lists)]
    with pytest.raises(TooManyAnswers):
        begun(lists)
    unread.pop().close()
    assert begun(lists) is not None
