"""Addresses are written so that clients can read them again."""

from urllib.parse import urlsplit

import pytest

from rioni.domain.access.addresses import host_and_port


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("localhost", "localhost:8080"),
        ("127.0.0.1", "127.0.0.1:8080"),
        ("broker.example.org", "broker.example.org:8080"),
        ("::1", "[::1]:8080"),
        ("::", "[::]:8080"),
        ("[::1]", "[::1]:8080"),
        ("2001:db8::1", "[2001:db8::1]:8080"),
        ("fe80::1%eth0", "[fe80::1%25eth0]:8080"),
        ("fe80::1%25eth0", "[fe80::1%25eth0]:8080"),
    ],
)
def test_host_and_port_are_one_part_of_a_url(host, written):
    assert host_and_port(host, 8080) == written
    parts = urlsplit(f"http://{host_and_port(host, 8080)}/event-types")
    assert parts.port == 8080
    assert parts.hostname == host.strip("[]").replace("%25", "%").replace("%", "%25")
