"""Requests that quotas admit or refuse, and the quotas' answers."""

from types import SimpleNamespace

import falcon
import falcon.testing
import pytest

from rioni.config.settings import Config
from rioni.domain.access.authorization import Subject
from rioni.domain.errors import QuotaExceeded
from rioni.http.caller import ANONYMOUS, Caller
from rioni.http.quotas import Quotas, SharedBuckets, add_rate_limits


class World:
    """Quotas with their own clock."""

    def __init__(self, **settings: int) -> None:
        self.now_s = 1_000.0
        self.refused: list[str] = []
        self._buckets, self._config = SharedBuckets(4), Config(**settings)
        self.quotas = self.worker()

    def worker(self) -> Quotas:
        """The quotas as another worker of the node has them."""
        return Quotas(self._config, self._buckets, self.refused.append, lambda: self.now_s)


def request(client: str = "10.0.0.1", size: int = 0, *, subject: Subject | None = None) -> SimpleNamespace:
    caller = ANONYMOUS if subject is None else Caller(subject)
    return SimpleNamespace(context=SimpleNamespace(caller=caller, held=(client, size)), remote_addr=client)


def admitted(world: World, count: int, **of_request) -> int:
    """The number of `count` changes that are admitted."""
    done = 0
    for _ in range(count):
        try:
            world.quotas.charge_change(request(**of_request))
        except QuotaExceeded:
            continue
        done += 1
    return done


def test_a_client_may_change_as_much_as_the_quota_at_once_and_then_as_comes_back():
    world = World(quota_changes_per_minute=60)
    assert admitted(world, 100) == 60
    world.now_s += 10
    assert admitted(world, 100) == 10
    world.now_s += 3_600
    assert admitted(world, 100) == 60
    assert world.refused.count("changes") == 40 + 90 + 40


def test_clients_have_quotas_of_their_own():
    world = World(quota_changes_per_minute=5)
    assert admitted(world, 9) == 5
    assert admitted(world, 9, client="10.0.0.2") == 5
    names = [Subject(name="orders", realm=realm) for realm in ("services", "employees")]
    assert [admitted(world, 9, subject=subject) for subject in names] == [5, 5]


def test_workers_of_a_node_share_the_quotas():
    world = World(quota_changes_per_minute=4)
    workers = [world.worker(), world.worker()]
    for number in range(4):
        workers[number % 2].charge_change(request())
    for each in workers:
        with pytest.raises(QuotaExceeded):
            each.charge_change(request())


def test_bytes_of_changes_are_counted():
    world = World(quota_change_bytes_per_minute=6_000)
    assert admitted(world, 10, size=1_000) == 6
    assert admitted(world, 10, size=0) == 10
    world.now_s += 10
    assert admitted(world, 10, size=1_000) == 1


def test_a_request_that_exceeds_one_quota_is_charged_to_none():
    world = World(quota_changes_per_minute=10, quota_change_bytes_per_minute=100)
    assert admitted(world, 5, size=60) == 1
    assert admitted(world, 20, size=0) == 9


def test_more_than_a_full_bucket_is_admitted_when_it_is_full_and_delays_the_next():
    world = World(quota_events_per_second=100)
    charge = world.quotas.publishing(request())
    charge(1_000, 1)
    with pytest.raises(QuotaExceeded) as refused:
        charge(1, 1)
    assert refused.value.retry_after_s == 10
    world.now_s += 9.5
    with pytest.raises(QuotaExceeded):
        charge(51, 1)
    charge(50, 1)


def test_what_is_given_back_can_be_used_again():
    world = World(quota_events_per_second=10)
    charge = world.quotas.publishing(request())
    for _ in range(100):
        charge(10, 5)
        charge(-10, -5)
    charge(10, 5)
    with pytest.raises(QuotaExceeded):
        charge(1, 1)


@pytest.mark.parametrize("wait_s", [1, 7, 59])
def test_a_client_that_waits_as_long_as_it_is_asked_to_is_admitted(wait_s):
    world = World(quota_changes_per_minute=60 // wait_s)
    while True:
        try:
            world.quotas.charge_change(request())
        except QuotaExceeded as ex:
            world.now_s += ex.retry_after_s
            break
    world.quotas.charge_change(request())


def test_without_quotas_nothing_is_charged():
    world = World(quota_changes_per_minute=0, quota_change_bytes_per_minute=0)
    assert world.quotas.publishing(request()) is None
    assert admitted(world, 10_000, size=10_000_000) == 10_000


def test_the_default_quotas_are_of_changes_alone():
    quotas = Quotas(Config(), SharedBuckets(4))
    assert quotas.publishing(request()) is None
    req, resp = request(size=2_000_000), falcon.Response()
    quotas.charge_change(req)
    add_rate_limits(req, resp)
    policy = '"changes";q=6000;w=60, "change-bytes";q=120000000;w=60;qu="content-bytes"'
    assert resp.get_header("RateLimit-Policy") == policy
    assert resp.get_header("RateLimit") == '"changes";r=5999;t=1, "change-bytes";r=118000000;t=1'


def test_a_refusal_says_what_is_left():
    world = World(quota_events_per_second=10, quota_bytes_per_second=1_000)
    req, resp = request(), falcon.Response()
    charge = world.quotas.publishing(req)
    charge(8, 100)
    with pytest.raises(QuotaExceeded, match=r"10 events in 1 s .*quota_events_per_second.*Try again in 1 s") as refused:
        charge(3, 100)
    assert refused.value.quotas == ("events",)
    add_rate_limits(req, resp)
    assert resp.get_header("RateLimit") == '"events";r=2;t=1, "event-bytes";r=900;t=1'


def test_answers_that_were_charged_nothing_say_nothing():
    resp = falcon.Response()
    add_rate_limits(SimpleNamespace(context=SimpleNamespace()), resp)
    assert not resp.headers
