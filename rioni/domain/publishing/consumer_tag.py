"""The header X-CONSUMER-TAG: the only subscription that gets a batch (reference publishing#consumer-tag)."""

from rioni.domain.errors import Invalid
from rioni.domain.schemas.formats import is_uuid


HEADER = "X-CONSUMER-TAG"
SUBSCRIPTION_ID = "CONSUMER_SUBSCRIPTION_ID"
"""The only tag; its name is case-insensitive."""

_NAME_AND_VALUE = 2


def tagged_subscription(header: str) -> str:
    """The id of the subscription that a batch is for.

    Args:
        header: `name=value`, separated by commas; spaces mean nothing.

    Raises:
        Invalid: it is empty, or a tag is unknown, there twice, or without a value that is a UUID.
    """
    text = "".join(header.split())
    if not text:
        raise Invalid(f"{HEADER}: is empty!")
    tags: dict[str, str] = {}
    for part in text.split(","):
        pieces = part.split("=")
        if len(pieces) != _NAME_AND_VALUE:
            raise Invalid(f"header tag parameter is imbalanced, expected: {_NAME_AND_VALUE} but provided {len(pieces)}")
        name, value = pieces
        if name.upper() != SUBSCRIPTION_ID:
            raise Invalid(f"invalid header tag: {name}")
        if SUBSCRIPTION_ID in tags:
            raise Invalid(f"duplicate header tag: {SUBSCRIPTION_ID}")
        if not is_uuid(value):
            raise Invalid(f"header tag value: {value} is not an UUID")
        tags[SUBSCRIPTION_ID] = value.lower()
    return tags[SUBSCRIPTION_ID]
