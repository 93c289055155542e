"""Access rights: attributes of clients, and authorization sections."""

from typing import Annotated, ClassVar

from rioni.wire.base import Model, note


class Attribute(Model):
    """An attribute of clients, such as `user:jane` or `service:shop`; `*:*` is every client."""

    data_type: Annotated[
        str, note("The kind of subject, such as `service` or `user`; `*` with the value `*` is everybody.")
    ]
    value: Annotated[str, note("The name of the subject.")]

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


Administering = Annotated[
    list[Attribute], note("Clients that may change and delete it; each list has at least one attribute.")
]
Reading = Annotated[list[Attribute], note("Clients that may read its events.")]
Writing = Annotated[list[Attribute], note("Clients that may publish to it.")]


class EventTypeAuthorization(Model):
    """The administrators, readers and writers of an event type."""

    admins: Administering
    readers: Reading
    writers: Writing


class SubscriptionAuthorization(Model):
    """The administrators and readers of a subscription."""

    admins: Administering
    readers: Reading


class Admins(Model):
    """The administrators, readers and writers of the broker itself."""

    COMPONENT: ClassVar[str] = "Administrators"

    admins: Annotated[
        list[Attribute],
        note("Clients that may administer the broker and every subscription.", default=[], required=False),
    ] = []
    readers: Annotated[
        list[Attribute],
        note("Clients that may read settings, every event type and every subscription.", default=[], required=False),
    ] = []
    writers: Annotated[
        list[Attribute],
        note(
            "Clients that may change settings, and publish to and change every event type.", default=[], required=False
        ),
    ] = []
