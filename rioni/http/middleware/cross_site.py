"""Rejects cross-site requests of browsers, and DNS rebinding.

A web page may let its visitor's browser send requests to any address that the browser reaches, a broker on localhost
among them. Browsers announce this in `Sec-Fetch-Site` and `Origin`, which pages can't change (Fetch standard, chapters
3.2 and Fetch Metadata). A page that rebinds its own host name to the broker's address passes for the broker's own site;
the `Host` header still has the page's name. Clients that are no browsers send neither of the first two.
"""

from functools import lru_cache
from urllib.parse import urlsplit

import falcon

from rioni.config.settings import Config
from rioni.domain.access.addresses import is_loopback
from rioni.domain.access.authorization import Mode
from rioni.domain.errors import CrossSite, ForeignHost


SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
OWN_SITE = frozenset(("same-origin", "none"))
"""Values of `Sec-Fetch-Site` for requests of the broker's own pages, and of the user (address bar, bookmark)."""
STREAMS = "/events"
"""How the paths of streams end: opening one takes partitions from other consumers, or one of the client's slots."""
HOSTS_CACHED = 128
PREFLIGHT_S = 7_200
"""How long a browser may remember the answer to a preflight request; Chromium takes no more."""
EXPOSED = "X-Flow-Id, span_ctx, X-Nakadi-StreamId, ETag, Link, Location, Content-Location, Warning, Retry-After"
METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
SENDER_CHARACTERS_MAX = 200
_PORTS = {"http": 80, "https": 443}


class HostMiddleware:
    """Rejects requests of browsers for other hosts, on any path."""

    def __init__(self, config: Config) -> None:
        self._names = frozenset((config.host.lower(), *_items(config.allowed_hosts)))
        self._checks_host = bool(config.allowed_hosts) or (config.auth_mode == Mode.OFF and config.local_only)
        # PERF: 0.1 us instead of 2 us for each request.
        self._is_own_host = lru_cache(HOSTS_CACHED)(self._is_known)

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Check a request of an application that answers with the errors of Falcon, before all other middleware.

        Raises:
            falcon.HTTPError: 421, the request is not for this broker.
        """
        try:
            self.check(req.env.get("HTTP_HOST", ""))
        except ForeignHost as ex:
            raise falcon.HTTPError(421, title="Misdirected Request", description=str(ex)) from None

    def check(self, host: str) -> None:
        """Check a header `Host`; raises ForeignHost if the request is not for this broker."""
        if self._checks_host and not self._is_own_host(host):
            raise ForeignHost(host[:SENDER_CHARACTERS_MAX])

    def _is_known(self, host: str) -> bool:
        """Whether a `Host` header is one of this broker's; no browser leaves it empty."""
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        name = name.lower()
        return not host or name in self._names or is_loopback(name.strip("[]"))


class SiteMiddleware:
    """Rejects requests of other sites whose origin is not listed, and requests for other hosts."""

    def __init__(self, config: Config) -> None:
        self._origins = frozenset(_items(config.allowed_origins))
        self._hosts = HostMiddleware(config)

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Check the request before authentication, so that other sites can't trigger token lookups.

        Raises:
            CrossSite: a page of another site would change something, or open a stream.
            ForeignHost: the request is not for this broker.
        """
        environ = req.env
        self._hosts.check(environ.get("HTTP_HOST", ""))
        if self._origins:
            resp.append_header("Vary", "Origin")
        origin, site = environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE")
        if origin is None and site is None:
            return
        if origin is not None and origin.lower() in self._origins:
            _share(req, resp, origin)
        elif _has_effects(req) and not _is_own_site(origin, site, environ.get("HTTP_HOST", "")):
            raise CrossSite(f"Origin: {origin[:SENDER_CHARACTERS_MAX]}" if origin else f"Sec-Fetch-Site: {site}")


def _share(req: falcon.Request, resp: falcon.Response, origin: str) -> None:
    """Let a page of a listed origin read the answer; preflight requests, which bear no token, are answered here."""
    resp.set_header("Access-Control-Allow-Origin", origin)
    resp.set_header("Access-Control-Expose-Headers", EXPOSED)
    if req.method == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in req.env:
        resp.set_header("Access-Control-Allow-Methods", METHODS)
        resp.set_header("Access-Control-Allow-Headers", req.get_header("Access-Control-Request-Headers", default=""))
        resp.set_header("Access-Control-Max-Age", str(PREFLIGHT_S))
        resp.status = falcon.HTTP_204
        resp.complete = True


def _has_effects(req: falcon.Request) -> bool:
    return req.method not in SAFE_METHODS or (req.method == "GET" and req.path.endswith(STREAMS))


def _is_own_site(origin: str | None, site: str | None, host: str) -> bool:
    """Whether a page of this broker, or no page, sends the request.

    Browsers that send `Sec-Fetch-Site` know better than a comparison with `Host`, which a proxy may have changed. Those
    that do not (older ones, and all to an address that is neither local nor HTTPS) send `Origin` with requests that
    have effects.
    """
    if site is not None:
        return site in OWN_SITE
    if origin is None:
        return True
    try:
        theirs = urlsplit(origin)
        ours = urlsplit(f"{theirs.scheme}://{host}")
        default = _PORTS.get(theirs.scheme)
        ports = {theirs.port or default, ours.port or default}
    except ValueError:
        return False
    return theirs.hostname is not None and theirs.hostname == ours.hostname and len(ports) == 1


def _items(text: str) -> list[str]:
    return [item.lower() for item in text.split(",") if item]
