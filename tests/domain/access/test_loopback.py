import pytest

from rioni.domain.access.loopback import is_loopback


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"])
def test_names_and_addresses_of_this_machine_are_recognised(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "192.168.0.1", "2001:db8::1", "localhost.example", "evil.localhost", "127.1", "[::1]"]
)
def test_all_others_count_as_other_machines(host):
    assert not is_loopback(host)
