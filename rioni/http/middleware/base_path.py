"""The path below which a reverse proxy serves the broker: requests lose it, and links in answers have it.

Proxies may remove it from requests or leave it there. It is that of the setting `base_path`, or that which a trusted
proxy names in the header `X-Forwarded-Prefix`. In the environment of WSGI it is `SCRIPT_NAME`, `root_path` for Falcon.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import falcon

from rioni.config.proxies import BASE_PATH_EXPECTED, is_base_path, is_within, networks
from rioni.config.settings import Config


Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

HEADER = "X-Forwarded-Prefix"
SHOWN_CHARACTERS_MAX = 200
ADDRESSES_CACHED = 128
_GIVEN = "HTTP_X_FORWARDED_PREFIX"
_REFUSED = "rioni.refused_prefix"


def below_base_path(app: Wsgi, config: Config) -> Wsgi:
    """A WSGI application below its base path; the same application if no setting allows one."""
    if not config.base_path and not config.trusted_proxies:
        return app
    trusted = networks(config.trusted_proxies)
    # PERF: 0.1 us instead of 3 us for each request.
    is_trusted = lru_cache(ADDRESSES_CACHED)(lambda address: is_within(address, trusted))

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        base = config.base_path
        if (given := environ.get(_GIVEN)) and is_trusted(environ.get("REMOTE_ADDR", "")):
            named = given.removesuffix("/")
            if is_base_path(named):
                base = named
            else:
                environ[_REFUSED] = given
        environ["PATH_INFO"] = without_base_path(environ["PATH_INFO"], base)
        environ["SCRIPT_NAME"] = base
        return app(environ, start_response)

    return application


def without_base_path(path: str, base_path: str) -> str:
    """The path of a resource, which may begin with the base path, without that."""
    if path == base_path or path.startswith(f"{base_path}/"):
        return path[len(base_path) :] or "/"
    return path


class BasePathMiddleware:
    """Refuses requests for which a trusted proxy names a path that can't be one."""

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Check a request.

        Raises:
            falcon.HTTPBadRequest: see above.
        """
        if (refused := req.env.get(_REFUSED)) is not None:
            raise falcon.HTTPBadRequest(
                description=f"The proxy's header {HEADER} must be {BASE_PATH_EXPECTED}, "
                f"not {refused[:SHOWN_CHARACTERS_MAX]!r}"
            )
