import pytest

from rioni.domain.access.addresses import address_key, is_loopback
from rioni.domain.access.authorization import NOBODY, UNAUTHENTICATED, Subject


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"])
def test_names_and_addresses_of_this_machine_are_recognised(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.168.0.1", "2001:db8::1", "localhost.example", "evil.localhost", "127.1", "[::1]"]
)
def test_all_others_count_as_other_machines(host):
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "addresses",
    [
        ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"],
        ["2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:DB8:1:2::1"],
        ["fe80::1", "fe80::1%eth0"],
        ["::1"],
    ],
)
def test_one_host_is_one_client_whatever_its_address(addresses):
    assert len({*map(address_key, addresses)}) == 1


def test_other_hosts_are_other_clients():
    addresses = ["192.0.2.1", "192.0.2.2", "2001:db8:1:2::1", "2001:db8:1:3::1", "::1", "no address", "a:b", "", None]
    keys = {*map(address_key, addresses)}
    assert len(keys) == len(addresses)
    assert not keys & {NOBODY.key, UNAUTHENTICATED.key, *(Subject(name=str(each)).key for each in addresses)}
