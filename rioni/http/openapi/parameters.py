"""OpenAPI parameters that several groups of operations share."""

from rioni.http.openapi.operations import (
    INTEGER,
    path,
    query,
)


NAME = path("name", "The name of the event type.", "order.created")
PAGE = (
    query("limit", "How many items a page has.", INTEGER | {"minimum": 1, "maximum": 1000, "default": 20}, 20),
    query("offset", "How many items to leave out.", INTEGER | {"minimum": 0, "default": 0}, 0),
)
