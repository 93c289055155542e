from dataclasses import dataclass

import msgspec
import pytest

from rioni.client.consumption.event_values import decoder


class Order(msgspec.Struct):
    id: int


@dataclass
class Payment:
    id: int


class Model:
    """A stand-in for a Pydantic model."""

    def __init__(self, text):
        self.text = text

    @classmethod
    def model_validate_json(cls, text):
        return cls(text)


RAW = msgspec.Raw(b'{"id": 1}')


def test_events_are_dictionaries_by_default():
    assert decoder(None)("any")(RAW) == {"id": 1}


def test_events_become_what_is_asked_for():
    assert decoder(Order)("any")(RAW) == Order(1)
    assert decoder(Payment)("any")(RAW) == Payment(1)
    assert decoder(Model)("any")(RAW).text == b'{"id": 1}'


def test_event_types_have_types_of_their_own():
    decode = decoder({"order": Order, "payment": Payment})
    assert [decode(name)(RAW) for name in ("order", "payment", "other")] == [Order(1), Payment(1), {"id": 1}]


def test_events_that_do_not_fit_are_errors():
    with pytest.raises(msgspec.ValidationError):
        decoder(Order)("any")(msgspec.Raw(b'{"id": "one"}'))
