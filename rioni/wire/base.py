"""The base of all models, and how they are written as JSON."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec


class Model(msgspec.Struct, kw_only=True):
    """An answer of the broker, or an object that is sent to it.

    Members that a model does not know are ignored, so that answers of newer brokers can be read.
    """

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
