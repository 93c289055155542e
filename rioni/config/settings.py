"""The settings of the broker: the purpose, default and limits of each; secrets are never shown."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from rioni.config.request_settings import RequestSettings
from rioni.config.server_settings import SECRET
from rioni.domain.access.addresses import is_loopback
from rioni.domain.access.authorization import Mode
from rioni.domain.errors import RioniError


# --- One setting: its name, the rules for its value, and how it is read and shown ---

PREFIX = "RIONI_"
_MASK = "***"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
_BOOLEANS = {"true": True, "false": False}


class ConfigError(RioniError):
    """A setting is unknown or its value can't be used; the message names it, and what is expected."""


class Setting(NamedTuple):
    """The definition of one setting."""

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
        """The purpose of the setting, in words."""
        return self.meta.description or ""

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return bool((self.meta.extra or {}).get("secret"))

    @property
    def expected(self) -> str:
        """The expected values, in words."""
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
        """Check a value; a text is converted first if another type is expected.

        Raises:
            ConfigError: it is not one of the expected values.
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


LOG_LEVELS = ("debug", "info", "warning", "error")
TEXT_LINES, JSON_LINES = "text", "json"
DEFAULT_ADMIN = "default_admin"
"""The value of another setting that stands for the client named by the setting `default_admin`."""


class Config(RequestSettings, frozen=True, kw_only=True):
    """Every setting; the description of each one is its documentation."""

    # The broker's own event types
    audit_owning_application: Annotated[
        str, Meta(min_length=1, description="Owning application of `nakadi.audit.log`.")
    ] = "stups_nakadi"
    kpi_owning_application: Annotated[
        str, Meta(min_length=1, description="Owning application of the KPI event types.")
    ] = "stups_nakadi"
    kpi_streams_interval_s: Annotated[
        int, Meta(ge=1, le=3_600, description="How often `nakadi.data.streamed` reports on an open stream.")
    ] = 30
    system_events_authorization: Annotated[
        str,
        Meta(
            pattern=f"^({DEFAULT_ADMIN}|[^:]+:[^:]+)$",
            description="Initial readers of system event types, as "
            f"`data_type:value`; `{DEFAULT_ADMIN}` is whom that setting names, `*:*` everybody. They are changed, "
            "deleted and written by the former alone.",
        ),
    ] = DEFAULT_ADMIN
    pseudonym_salt: Annotated[
        str,
        Meta(description="Salt of the pseudonyms of clients.", extra=SECRET),
    ] = "salt"

    # Metrics and the log of the server
    metrics_event_types_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Event types that each worker process counts by name in `/metrics`; it counts further ones "
            "together, as `(others)`.",
        ),
    ] = 1_000
    metrics_subscriptions_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Subscriptions whose lags `/metrics` shows each by itself, the largest ones; it shows those of "
            "further ones together, as `(others)`.",
        ),
    ] = 1_000
    metrics_history_series_max: Annotated[
        int,
        Meta(
            ge=100,
            le=100_000,
            description="Series of which `/metrics/history` keeps the last hour; each takes 13 kB of the data "
            "directory, once for all worker processes.",
        ),
    ] = 4_000
    log_level: Annotated[
        str,
        Meta(
            pattern=f"^({'|'.join(LOG_LEVELS)})$",
            description="Minimum level of log lines, which go to standard error.",
            extra={"expected": "one of " + ", ".join(LOG_LEVELS)},
        ),
    ] = "info"
    log_format: Annotated[
        str,
        Meta(
            pattern=f"^({TEXT_LINES}|{JSON_LINES})$",
            description=f"How it is written: `{TEXT_LINES}` for people, `{JSON_LINES}` for programs: an object a line.",
            extra={"expected": f"one of {TEXT_LINES}, {JSON_LINES}"},
        ),
    ] = TEXT_LINES

    # The event stores
    append_timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3_600,
            description="How long a publish request waits for the disk, or for Kafka; then the answer is 503 if "
            "nothing was written, and 207 if the outcome is unknown.",
        ),
    ] = 30
    cache_bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory of each worker for events that were published or read last, of all storages together; "
            "consumers are served from it.",
        ),
    ] = 50_331_648

    @property
    def clustered(self) -> bool:
        """Whether this broker is one node of several."""
        return self.zookeeper is not None

    @property
    def local_only(self) -> bool:
        """Whether `host` is known to be an address that only this machine can reach."""
        return is_loopback(self.host)

    @property
    def unprotected(self) -> bool:
        """Whether the broker listens on a non-loopback address with authentication off."""
        return self.auth_mode == Mode.OFF and not self.local_only

    def __repr__(self) -> str:
        shown = (f"{setting.name}={setting.show(getattr(self, setting.name))!r}" for setting in SETTINGS.values())
        return f"Config({', '.join(shown)})"


def _settings() -> Iterator[tuple[str, Setting]]:
    for name, hint in get_type_hints(Config, include_extras=True).items():
        annotated, meta = get_args(hint)
        kind = next(iter(get_args(annotated)), annotated)
        yield name, Setting(name, kind, hint, meta)


SETTINGS: Mapping[str, Setting] = MappingProxyType(dict(_settings()))
