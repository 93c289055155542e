"""Notifications about topics between the nodes of a cluster."""

import contextlib

import pytest

from rioni.domain.errors import Unavailable
from rioni.storage.sql import topic_news
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.topic_news import PostgresTopicNews
from tests.support.waiting import wait_until


pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def url(lasting_postgres_url):
    return lasting_postgres_url()


@pytest.fixture
def node():
    """Starts nodes, which are closed with the test."""
    with contextlib.ExitStack() as stack:

        def start(url):
            engine = create_engine(url)
            stack.callback(engine.dispose)
            news = PostgresTopicNews(engine)
            stack.callback(news.close)
            return news

        yield start


def heard(news, *topics):
    """Wait until a node has heard of these topics, and of nothing else."""
    found = set()
    wait_until(lambda: found.update(news.exchange(()) or ()) or found >= {*topics})
    assert found == {*topics}


def test_nodes_hear_of_the_topics_of_others_but_not_of_their_own(url, node):
    one, two, three = node(url), node(url), node(url)
    assert [each.exchange(()) for each in (one, two, three)] == [None] * 3
    wait_until(lambda: one.exchange(()) == two.exchange(()) == three.exchange(()) == set())
    one.exchange(["a", "b"])
    for each in (two, three):
        heard(each, "a", "b")
    two.exchange(["c"])
    for each in (one, three):
        heard(each, "c")


def test_many_topics_are_told_in_several_texts_and_too_many_as_all(url, node, monkeypatch):
    monkeypatch.setattr(topic_news, "PAYLOADS_MAX", 3)
    one, two = node(url), node(url)
    one.exchange(())
    two.exchange(())
    wait_until(lambda: one.exchange(()) == two.exchange(()) == set())
    topics = [f"{'t' * 200}.{number}" for number in range(100)]
    one.exchange(topics)
    heard(two, *topics)
    one.exchange(topics + [f"{each}.more" for each in topics])
    wait_until(lambda: two.exchange(()) is None)


def test_a_node_that_was_not_connected_may_have_missed_something_and_so_may_the_others(url, node):
    one, two = node(url), node(url)
    one.exchange(())
    two.exchange(())
    wait_until(lambda: one.exchange(()) == two.exchange(()) == set())
    own = one._connection.info.backend_pid
    two._connection.execute("SELECT pg_terminate_backend(%s)", (own,))
    with pytest.raises(Unavailable, match="does not report"):
        wait_until(lambda: one.exchange(["a"]) and False)
    assert one.exchange(["b"]) is None
    wait_until(lambda: two.exchange(()) is None)
    wait_until(lambda: one.exchange(()) == two.exchange(()) == set())
