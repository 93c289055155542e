"""Trusted proxies, and the paths below which they may serve a broker. Source: reference common#base-path."""

import pytest

from rioni.config.proxies import OWN_PATHS, is_base_path, is_within, networks
from tests.support.routes import routed


@pytest.mark.parametrize(
    ("address", "within"),
    [
        ("10.1.2.3", True),
        ("10.2.0.0", False),
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:10.2.0.0", False),
        ("fd00::1", True),
        ("fd00::1%eth0", True),
        ("fe80::1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_an_address_is_in_one_of_the_networks(address, within):
    assert is_within(address, networks("127.0.0.1,10.1.0.0/16,fd00::/8")) is within


def test_without_networks_nobody_is_believed():
    assert not is_within("127.0.0.1", networks(""))


def test_no_base_path_begins_as_a_path_of_the_broker():
    """Otherwise a request for it could be one whose prefix the proxy has removed, and one whose prefix is there."""
    own = {route.partition(" /")[2].partition("/")[0] for route in routed()}
    assert own | {"console"} == OWN_PATHS
    for name in own:
        assert not is_base_path(f"/{name}")
        assert not is_base_path(f"/{name}/more")
        assert is_base_path(f"/{name}s-of-ours")
        assert is_base_path(f"/tools/{name}")
