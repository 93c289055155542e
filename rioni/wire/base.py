"""The base of all structs: how members are described, and which of them a client sends."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec
from msgspec import Meta


def note(
    description: str = "",
    /,
    *,
    literal: str = "",
    required: bool | None = None,
    nullable: bool = False,
    in_body: bool = True,
    answered: Any = None,
    **keywords: Any,
) -> Meta:
    """Describe a member for readers of the API; a msgspec `Meta` next to it has the bounds that are checked.

    Args:
        description: its meaning.
        literal: the name of the set of values that it has one of, such as `Category`; the broker defines the values.
        required: whether the broker always writes it; by default, what is nullable or has no default None.
        nullable: the broker may write null.
        in_body: False for what the client adds from elsewhere, such as a header.
        answered: the type of the member in answers, if it is narrower than in requests.
        keywords: further keywords of JSON Schema that are shown and not checked.
    """
    shown = {"description": description, "title": literal, **keywords}
    flags = {"required": required, "nullable": nullable, "in_body": in_body, "answered": answered}
    return Meta(extra_json_schema={key: value for key, value in shown.items() if value != ""}, extra=flags)


class Model(msgspec.Struct, kw_only=True):
    """An answer of the broker, or an object that is sent to it.

    Members that a model does not know are ignored, so that answers of newer brokers can be read.
    """

    COMPONENT: ClassVar[str] = ""
    """The name in the description of the API, if it differs from that of the class."""
    NOT_SENT: ClassVar[frozenset[str]] = frozenset()
    """Members that only the broker sets."""

    def members(self) -> dict[str, Any]:
        """The members that are sent: those that the client may set, and that are not None."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in found.items() if value is not None and name not in self.NOT_SENT}

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> Self:
        """The model with these members, as of a JSON or YAML file.

        Raises:
            msgspec.ValidationError: a member is missing or has another type.
        """
        return msgspec.convert(members, cls)


def has_members(found: Model, wanted: Mapping[str, Any]) -> bool:
    """Whether something that was read from the broker has all members that were sent; it may have more."""
    return _contains(found.members(), wanted)


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        return all(value is None or _contains(found.get(name), value) for name, value in wanted.items())
    return bool(found == wanted)
