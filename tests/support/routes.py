"""The routes that the application serves."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from falcon import inspect

from rioni.config.settings import Config
from rioni.http.app import create_app
from rioni.http.dependencies import Dependencies
from rioni.http.metrics.collectors import Metrics


@functools.cache
def routed() -> Sequence[str]:
    """Every method of every route of the application, as Falcon knows them, such as `GET /event-types/{name}`.

    PERF: asked once: Falcon parses the sources of all resources, which takes 0.4 s.
    """
    return tuple(_routed())


def _routed() -> Iterator[str]:
    # No resource uses its dependencies, except for the settings, before there is a request.
    dependencies = Dependencies(
        **dict.fromkeys(field.name for field in dataclasses.fields(Dependencies))
        | {"config": Config(), "metrics": Metrics()}
    )
    for route in inspect.inspect_routes(create_app(dependencies)):
        for method in route.methods:
            # HEAD, which is wherever GET is, has no description of its own.
            if not method.internal and method.method != "HEAD":
                # The document names parameters without their converters.
                yield f"{method.method} {route.path}".replace(":path}", "}")
