"""One setting: its name, what its value must be, and how it is read and shown."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Meta

from rioni.domain.errors import RioniError


PREFIX = "RIONI_"
_MASK = "***"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
_BOOLEANS = {"true": True, "false": False}


class ConfigError(RioniError):
    """A setting is unknown or its value can't be used; the text says where and what would be right."""


class Setting(NamedTuple):
    """What is known about one setting."""

    name: str
    kind: type
    hint: Any
    meta: Meta

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper()

    @property
    def description(self) -> str:
        """What it is for."""
        return self.meta.description or ""

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return bool((self.meta.extra or {}).get("secret"))

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if expected := (self.meta.extra or {}).get("expected"):
            return str(expected)
        if self.kind is bool:
            return "true or false"
        if self.kind is not int:
            return "a path" if self.kind is Path else "a text like data_type:value" if self.meta.pattern else "a text"
        if self.meta.le is None:
            return f"a whole number, at least {self.meta.ge}"
        return f"a whole number from {self.meta.ge} to {self.meta.le}"

    def parse(self, value: object) -> Any:
        """Check a value, reading it from its text form where that is what there is.

        Raises:
            ConfigError: it is not what is expected.
        """
        if self.kind is int and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if self.kind is bool and isinstance(value, str):
            value = _BOOLEANS.get(value.lower(), value)
        try:
            return msgspec.convert(value, self.hint, dec_hook=lambda kind, raw: kind(raw))
        except msgspec.ValidationError as ex:
            raise ConfigError(f"must be {self.expected}" + ("" if self.secret else f", not {value!r}")) from ex

    def show(self, value: object) -> str:
        """A value for people to read, masked if it is a secret."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return "" if value is None else _MASK if self.secret else text
