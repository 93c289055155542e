"""The proxy for each broker: a table of environments and URLs."""

import importlib.util
from urllib.parse import urlsplit

import pytest

from rioni.client import Client, proxies


PROXY = "http://proxy:3128"


@pytest.fixture
def proxy_of(monkeypatch):
    """The proxy for a URL, with these variables."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "request_method"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def ask(url, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return proxies.proxy_for(urlsplit(url))

    return ask


@pytest.mark.parametrize(
    ("environ", "url", "expected"),
    [
        ({}, "http://broker", None),
        ({"HTTP_PROXY": PROXY}, "http://broker", PROXY),
        ({"http_proxy": PROXY}, "http://broker", PROXY),
        ({"HTTP_PROXY": "proxy:3128"}, "http://broker", PROXY),
        ({"HTTP_PROXY": PROXY}, "https://broker", None),
        ({"HTTPS_PROXY": PROXY}, "https://broker:8443", PROXY),
        ({"HTTPS_PROXY": PROXY}, "http://broker", None),
        ({"ALL_PROXY": PROXY}, "http://broker", PROXY),
        ({"ALL_PROXY": PROXY, "HTTP_PROXY": "https://other:1"}, "http://broker", "https://other:1"),
        ({"HTTP_PROXY": "http://jane:secret@proxy:1"}, "http://broker", "http://jane:secret@proxy:1"),
        ({"HTTP_PROXY": ""}, "http://broker", None),
    ],
)
def test_the_environment_names_the_proxy(proxy_of, environ, url, expected):
    assert proxy_of(url, **environ) == expected


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.1.2.3", "[::1]", "0.0.0.0", "[::]"],
)
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
@pytest.mark.parametrize("proxy", [PROXY, "socks5://proxy:1080", "nonsense://"])
def test_a_broker_of_this_machine_is_asked_directly(proxy_of, host, variable, proxy):
    assert proxy_of(f"http://{host}:8080", **{variable: proxy}) is None


@pytest.mark.parametrize(
    ("exempted", "host", "direct"),
    [
        ("*", "broker", True),
        ("broker", "broker", True),
        ("broker:8080", "broker", True),
        ("broker:1", "broker", False),
        ("other, broker", "broker", True),
        ("example.org", "a.example.org", True),
        (".example.org", "a.example.org", True),
        ("example.org", "anexample.org", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/16", "10.1.2.3", False),
        ("fd00::/8", "[fd00::1]", True),
        ("[fd00::1]", "[fd00::1]", True),
        ("fd00:0::1", "[fd00::1]", True),
        ("", "broker", False),
    ],
)
def test_no_proxy_exempts_names_domains_addresses_and_networks(proxy_of, exempted, host, direct):
    found = proxy_of(f"http://{host}:8080", HTTP_PROXY=PROXY, NO_PROXY=exempted)
    assert found == (None if direct else PROXY)


@pytest.mark.parametrize("proxy", ["ftp://proxy:1", "http://", "nonsense://proxy"])
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_that_can_not_be_used_is_an_error_that_names_the_variable(proxy_of, proxy, variable):
    with pytest.raises(ValueError, match=f"{variable} is {proxy}, which is not the URL of a proxy.*NO_PROXY=broker"):
        proxy_of("http://broker", **{variable: proxy})


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_a_proxy_of_socks_needs_a_package_and_the_error_says_so_without_the_password(proxy_of, scheme):
    if importlib.util.find_spec("socksio") is not None:
        assert proxy_of("http://broker", ALL_PROXY=f"{scheme}://proxy:1080") == f"{scheme}://proxy:1080"
        return
    with pytest.raises(ValueError, match=f"ALL_PROXY is {scheme}://proxy:1080, .* pip install socksio") as raised:
        proxy_of("http://broker", ALL_PROXY=f"{scheme}://jane:secret@proxy:1080")
    assert "secret" not in str(raised.value)
    with pytest.raises(ValueError, match="socksio"):
        Client("http://broker")
