"""PostgreSQL notifies every process of changes: confirmed changes are known in all processes, without polling."""

import contextlib
import subprocess
import sys
import threading

import psycopg
import pytest
from sqlalchemy import event, make_url

from rioni.domain.aggregates import FORMATS, newest
from rioni.domain.events import stream_id
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.log_head import NAME
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade
from tests.contracts.event_log import ORIGIN, TOPICS, Noted, note
from tests.storage.log_writer import ROOT
from tests.support.proxy import proxy_to
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.postgres


class Node:
    """One process's log, with a record of its queries and notifications."""

    def __init__(self, url: str) -> None:
        engine = create_engine(url, connections_max=3)
        self.questions: list[str] = []
        self.news = threading.Event()
        event.listen(engine, "before_cursor_execute", lambda _c, _k, statement, *_: self.questions.append(statement))
        self.log = SqlEventLog(engine, TOPICS)
        self.log.follow(self.news.set)
        self.follower = self.log._head
        wait_until(lambda: self.follower.trusted_position() is not None)


@pytest.fixture
def url(postgres_url):
    url = postgres_url()
    engine = create_engine(url)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture
def node():
    """Starts nodes, which are closed with the test."""
    with contextlib.ExitStack() as stack:

        def start(url: str) -> Node:
            node = Node(url)
            stack.callback(node.log.close)
            return node

        yield start


def asked(url: str, question: str):
    """The result of a query over an independent connection."""
    with psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)) as stranger:
        return stranger.execute(question).fetchall()


FOLLOWERS = f"FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '{NAME} %'"


def test_a_committed_change_is_known_to_all_nodes_without_polling(url, node):
    nodes = [node(url) for _ in range(3)]
    for number in range(30):
        writer = nodes[number % 3]
        (entry,) = note(writer.log, f"stream {number}")
        questions = [len(each.questions) for each in nodes]
        assert [each.log.position() for each in nodes] == [entry.position] * 3
        assert [len(each.questions) for each in nodes] == questions


def test_a_process_without_a_listener_notifies_the_others_as_well(url, node):
    follower = node(url)
    engine = create_engine(url)
    alone = SqlEventLog(engine, TOPICS)
    for number in range(10):
        (entry,) = note(alone, f"stream {number}")
        assert follower.log.position() == entry.position == alone.position()
    alone.close()


def test_a_new_node_knows_earlier_changes(url, node):
    note(node(url).log, "a", "1", "2", "3")
    assert node(url).log.position() == 3


def test_changes_by_others_wake_a_node(url, node):
    one, other = node(url), node(url)
    other.news.clear()
    note(one.log, "a")
    assert other.news.wait(WAIT_S)


def test_a_transaction_that_appends_nothing_or_fails_sends_no_notification(url, node):
    one, other = node(url), node(url)
    other.news.clear()
    with one.log.transaction():
        pass

    class Stop(Exception):
        pass

    def fail() -> None:
        with one.log.transaction() as transaction:
            transaction.append(stream_id("note", "a"), 0, [Noted(name="a")], ORIGIN)
            raise Stop

    with pytest.raises(Stop):
        fail()
    note(one.log, "b")
    assert other.news.wait(WAIT_S)
    assert other.log.position() == 1


def test_a_node_whose_connection_is_cut_polls_until_notifications_work_again(url, node):
    one, other = node(url), node(url)
    assert asked(url, f"SELECT pg_terminate_backend(pid, 10000) {FOLLOWERS}") == [(True,)] * 2
    wait_until(lambda: other.follower.trusted_position() is None)
    (first,) = note(one.log, "a")
    assert other.log.position() == first.position
    wait_until(lambda: other.follower.trusted_position() is not None)
    (second,) = note(one.log, "b")
    questions = len(other.questions)
    assert other.log.position() == second.position
    assert len(other.questions) == questions


def test_a_node_without_notifications_answers_nothing_stale_once_a_change_is_confirmed(url, node):
    with proxy_to(url) as proxy:
        cut_off = node(proxy.url)
        writer = node(url)
        proxy.silence()
        (entry,) = note(writer.log, "a")
        assert cut_off.follower.trusted_position() is None
        # Reads that may be outdated still work.
        assert cut_off.log.last_notified_position() == 0
        assert writer.log.position() == entry.position
        # No writer waits for it a second time.
        assert not writer.log._head._behind(entry.position)
        proxy.close()


def test_listeners_publish_their_positions_and_leave_nothing_behind(url, node):
    one = node(url)
    note(one.log, "a", "1", "2")
    assert asked(url, f"SELECT application_name {FOLLOWERS}") == [(f"{NAME} 2 format {newest(FORMATS)}",)]
    one.log.close()
    wait_until(lambda: not asked(url, f"SELECT 1 {FOLLOWERS}"))


@pytest.mark.slow
def test_under_gevent_the_hub_keeps_running_and_few_connections_are_enough(url):
    command = [sys.executable, "-X", "dev", "-m", "tests.storage.gevent_log_follower", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "all is well\n", done.stderr
    assert "ResourceWarning" not in done.stderr
