"""JSON schemas made from structs: what answers, requests and checks have of them."""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta

from rioni.wire.base import Model, note
from rioni.wire.json_schema import Use, parameters, schema


class Wheel(Model):
    size: Annotated[int, Meta(ge=1), note("In inches.", maximum=40)]


class Bicycle(Model):
    COMPONENT: ClassVar[str] = "Bike"
    NOT_SENT: ClassVar[frozenset[str]] = frozenset(("sold_at",))

    colour: Annotated[str, note("Of the frame.", literal="Colour")]
    wheels: Annotated[list[Wheel], Meta(max_length=2)] = []
    sold_at: Annotated[datetime | None, note(required=True)] = None
    owner: Annotated[str | None, note(nullable=True)] = None
    bell: str | None = None
    tag: Annotated[str | None, note(in_body=False)] = None


WHEELS = {"type": "array", "maxItems": 2}


def test_an_answer_has_what_the_broker_always_writes():
    wheel = {"type": "integer", "minimum": 1, "description": "In inches.", "maximum": 40}
    assert schema(Bicycle) == {
        "title": "Bike",
        "type": "object",
        "properties": {
            "colour": {"type": "string", "description": "Of the frame.", "title": "Colour"},
            "wheels": WHEELS
            | {"items": {"title": "Wheel", "type": "object", "properties": {"size": wheel}, "required": ["size"]}},
            "sold_at": {"type": "string", "format": "date-time", "examples": ["2026-11-20T10:00:00.000Z"]},
            "owner": {"type": ["string", "null"]},
            "bell": {"type": "string"},
        },
        "required": ["colour", "wheels", "sold_at", "owner"],
    }


def test_members_of_a_request_may_be_null_and_its_bounds_are_checked():
    size = {"type": ["integer", "null"], "minimum": 1, "maximum": 2**63 - 1}
    wheel = {"title": "SubmittedWheel", "type": "object", "properties": {"size": size}}
    assert schema(Bicycle, Use.CHECK)["properties"] == {
        "colour": {"type": ["string", "null"]},
        "wheels": WHEELS | {"type": ["array", "null"], "items": wheel},
        "owner": {"type": ["string", "null"]},
        "bell": {"type": ["string", "null"]},
    }
    described = schema(Bicycle, Use.REQUEST)
    assert described["title"] == "SubmittedBike"
    assert described["properties"]["colour"] == {
        "type": ["string", "null"],
        "description": "Of the frame.",
        "title": "Colour",
    }
    assert described["properties"]["wheels"]["items"]["properties"]["size"]["maximum"] == 40


def test_parameters_have_their_defaults():
    class Numbers(Model):
        limit: Annotated[int, note("How many.")] = 10
        name: str | None = None

    assert parameters(Numbers) == {
        "limit": {"type": "integer", "description": "How many.", "default": 10},
        "name": {"type": "string"},
    }
