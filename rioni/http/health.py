"""`/health`, `/version`, `/metrics`: what operators and their machines ask."""

from http import HTTPStatus

import falcon
import orjson

from rioni import __version__
from rioni.http.metrics import Metrics
from rioni.http.services import Services


class HealthResource:
    """`/health`: the process answers; public in every mode."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Say OK."""
        resp.content_type = falcon.MEDIA_TEXT
        resp.text = "OK"


class ReadyResource:
    """`/readyz`: the process can do its work."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Say OK once the log can be read and shutting down has not begun."""
        resp.content_type = falcon.MEDIA_TEXT
        if self._services.stopping.is_set():
            resp.status = HTTPStatus.SERVICE_UNAVAILABLE.value
            resp.text = "shutting down"
            return
        self._services.registry.refresh()
        resp.text = "OK"


class VersionResource:
    """`/version`."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """Name the version; there is no source revision in a package."""
        resp.data = orjson.dumps({"version": __version__, "scm_source": None})


class MetricsResource:
    """`/metrics`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_get(self, _req: falcon.Request, resp: falcon.Response) -> None:
        """All metrics of all worker processes, in Prometheus' text format."""
        resp.content_type = "text/plain; version=0.0.4; charset=utf-8"
        resp.set_header("Cache-Control", "must-revalidate,no-cache,no-store")
        resp.data = self._metrics.text()
