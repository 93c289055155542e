"""Advice after an error: about tokens it depends on whether there is one, and where it comes from."""

from itertools import repeat

import pytest

from rioni.cli.connections.connection import BrokerConnection
from rioni.cli.connections.session import advice, proposals
from rioni.client import ConnectionFailed, Forbidden, NotFound, Unauthorized


def _connection(token_origin=None):
    return BrokerConnection("http://127.0.0.1:1", None, None, 1.0, "--url", token_origin)


def _problem(kind, status, detail="y"):
    return kind(status, {"title": "x", "detail": detail}, request="GET /storages", retry_after_s=None)


def test_without_a_token_it_says_how_to_give_one():
    said = advice(_problem(Unauthorized, 401), _connection())
    assert said == " The broker wants a token: set RIONI_TOKEN, or add a context with --token-command."


@pytest.mark.parametrize("origin", ["--token", "the variable RIONI_TOKEN", "the token_command of the context prod"])
def test_a_token_that_is_refused_is_named_by_its_origin(origin):
    said = advice(_problem(Unauthorized, 401), _connection(origin))
    assert said == f" The token comes from {origin}: that is where a new one belongs."
    assert "set RIONI_TOKEN" not in said


def test_a_missing_right_is_no_matter_of_the_token():
    assert "settings rights" in advice(_problem(Forbidden, 403), _connection("--token"))


def test_a_broker_that_is_not_there_is_looked_for():
    assert "context show" in advice(ConnectionFailed("no", sent=False), _connection())
    assert advice(ConnectionFailed("no", sent=True), _connection()) == ""


def test_a_name_is_only_proposed_where_all_names_came_in_time(broker, monkeypatch):
    connection = BrokerConnection(broker.url, None, None, 1.0, "--url", None)
    assert proposals([(lambda _: ["orders"], "order")], connection) == "Did you mean orders?"
    monkeypatch.setattr("rioni.cli.connections.session.NAMES_S", 0.001)
    assert proposals([(lambda _: repeat("orders"), "order")], connection) == ""


def test_what_the_broker_proposes_is_not_asked_again():
    asked = _problem(NotFound, 404, "There is none; did you mean orders?")
    assert advice(asked, _connection(), [(lambda _: ["orders"], "order")]) == ""
