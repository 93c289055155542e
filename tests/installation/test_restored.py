"""Committed cursors in a restored cluster are compared with the ends of the topics."""

import pytest

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.timelines.position import EventTypePartition
from rioni.installation.restored import RESET
from rioni.installation.stores import beyond_ends
from tests.installation.test_stores import create, running
from tests.support.verification import problems


@pytest.mark.parametrize(("offset", "beyond"), [(-1, False), (9, False), (10, True), (10**9, True)])
def test_a_cursor_after_the_last_event_is_named_with_what_to_do(tmp_path, offset, beyond):
    with running(tmp_path / "data") as base:
        create(base)
        base.registry.refresh()
        timeline = base.registry.timelines("a").active
    key = EventTypePartition("a", "0")
    text = "001-0001--1" if offset < 0 else f"001-0001-{offset:018d}"
    cursors = [("s", key, text), ("s", EventTypePartition("gone", "0"), "001-0001-000000000000000007")]
    found = list(beyond_ends(cursors, [timeline], lambda _: [10], RESET))
    assert [("subscription s: " in each, "Reset its cursors" in each) for each in found] == [(True, True)] * beyond


def test_a_broker_on_one_machine_is_told_that_this_is_for_a_cluster(tmp_path):
    with running(tmp_path / "data"):
        pass
    with pytest.raises(Unavailable, match="for a cluster"):
        problems(Config(data=tmp_path / "data"), restored=True)
