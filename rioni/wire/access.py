"""Access rights: attributes of clients, and authorization sections."""

from rioni.wire.base import Model


class Attribute(Model):
    """An attribute of clients, such as `user:jane` or `service:shop`; `*:*` is every client."""

    data_type: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Attribute":
        """The attribute that is written as `data_type:value`.

        Raises:
            ValueError: the text has another form.
        """
        data_type, colon, value = text.partition(":")
        if not colon or not data_type or not value:
            raise ValueError(f"{text!r} is not an attribute: write data_type:value, such as service:shop")
        return cls(data_type=data_type, value=value)

    def __str__(self) -> str:
        return f"{self.data_type}:{self.value}"


class EventTypeAuthorization(Model):
    """The administrators, readers and writers of an event type."""

    admins: list[Attribute]
    readers: list[Attribute]
    writers: list[Attribute]


class SubscriptionAuthorization(Model):
    """The administrators and readers of a subscription."""

    admins: list[Attribute]
    readers: list[Attribute]
