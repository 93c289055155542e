"""The table of buckets: shared by processes, bounded, and forgetful of those that have used least."""

import os

import pytest

from rioni.http.quotas import PROBES, SharedBuckets


def test_buckets_of_a_new_client_are_full():
    buckets = SharedBuckets(2)
    assert buckets.full_at_s(buckets.place("orders", 10.0), 1) <= 10.0


def test_each_client_and_quota_has_a_bucket_of_its_own():
    buckets = SharedBuckets(2)
    for number in range(100):
        buckets.set_full_at_s(buckets.place(f"client {number}", 0.0), number % 2, 100.0 + number)
    for number in range(100):
        place = buckets.place(f"client {number}", 0.0)
        assert buckets.full_at_s(place, number % 2) == 100.0 + number
        assert buckets.full_at_s(place, 1 - number % 2) == 0.0


@pytest.mark.parametrize("client", ["", "\n127.0.0.1", "ünïcode", "\udcff", "x" * 10_000])
def test_every_key_has_a_place(client):
    buckets = SharedBuckets(1)
    buckets.set_full_at_s(buckets.place(client, 0.0), 0, 7.0)
    assert buckets.full_at_s(buckets.place(client, 0.0), 0) == 7.0


def test_a_full_table_forgets_the_client_that_has_used_least():
    buckets = SharedBuckets(1, clients_max=PROBES)
    for number in range(PROBES):
        buckets.set_full_at_s(buckets.place(f"client {number}", 0.0), 0, 100.0 + number)
    assert buckets.full_at_s(buckets.place("another", 0.0), 0) == 0.0
    for number in range(1, PROBES):
        assert buckets.full_at_s(buckets.place(f"client {number}", 0.0), 0) == 100.0 + number


def test_forked_processes_share_the_buckets():
    buckets = SharedBuckets(1)
    pid = os.fork()
    if not pid:
        buckets.set_full_at_s(buckets.place("orders", 0.0), 0, 42.0)
        os._exit(0)
    os.waitpid(pid, 0)
    assert buckets.full_at_s(buckets.place("orders", 0.0), 0) == 42.0
