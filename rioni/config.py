"""The settings of the broker: what each one is for, its default and its bounds, and where its value comes from.

A value comes from, in this order: the command line, the environment (`RIONI_PORT`), a TOML file (`rioni.toml` in the
working directory, or the one that `--config` or `RIONI_CONFIG` names), the default. A name that is no setting, and a
value that can't be used, are errors that name the place and what would be right; the values of secrets are never shown.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from rioni.domain.errors import RioniError


PREFIX = "RIONI_"
FILE = "rioni.toml"
FILE_VARIABLE = "RIONI_CONFIG"
COMMAND_LINE = "command line"
DEFAULT = "default"
_MASK = "***"
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")
_SECRET = {"secret": True}


class ConfigError(RioniError):
    """A setting is unknown or its value can't be used; the text says where and what would be right."""


def _one_per_core() -> int:
    return len(os.sched_getaffinity(0))


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting; the description of each one is its documentation (registry contract 14, design chapter 10)."""

    # Where it listens and keeps its data
    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. The default can be reached from this machine alone, because nobody is "
            "asked for a password; `0.0.0.0` or `::` opens the broker to the network.",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="TCP port; 0 lets the system choose a free one.")] = 8_080
    data: Annotated[Path, Meta(description="Data directory, made if missing; relative to the working directory.")] = (
        Path("rioni-data")
    )
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Worker processes; the default is one for each core it may use.")
    ] = msgspec.field(default_factory=_one_per_core)
    database: Annotated[
        str | None,
        Meta(
            description="URL of a PostgreSQL database for the registry; without it SQLite in the data directory.",
            extra=_SECRET,
        ),
    ] = None

    # Requests
    body_timeout_s: Annotated[
        int, Meta(ge=1, le=3_600, description="How long the body of a request may pause before the request is dropped.")
    ] = 30
    keep_alive_s: Annotated[
        int, Meta(ge=1, le=3_600, description="How long an idle connection stays open for a next request.")
    ] = 75
    shutdown_s: Annotated[
        int, Meta(ge=1, le=3_600, description="How long running requests may take to end once the broker is told to.")
    ] = 10
    body_bytes_max: Annotated[
        int, Meta(ge=1_000, description="Size of the body of a request, inflated; a larger one is answered 413.")
    ] = 50_000_000

    # Publishing
    event_bytes_max: Annotated[
        int, Meta(ge=1, le=2_000_000, description="Size of one event with its metadata; a larger one is answered 422.")
    ] = 999_000
    batch_events_max: Annotated[
        int, Meta(ge=1, description="Events in one publish request; more are answered 413.")
    ] = 100_000

    # Event types and subscriptions
    partitions_default: Annotated[
        int, Meta(ge=1, description="Partitions of an event type whose definition says nothing about its load.")
    ] = 1
    partitions_max: Annotated[int, Meta(ge=1, le=1_000, description="Partitions of an event type.")] = 8
    retention_min_ms: Annotated[int, Meta(ge=0, description="The shortest retention time of an event type.")] = (
        10_800_000
    )
    retention_default_ms: Annotated[
        int, Meta(ge=0, description="Retention time of an event type that does not state its own.")
    ] = 172_800_000
    retention_max_ms: Annotated[int, Meta(ge=0, description="The longest retention time of an event type.")] = (
        345_600_000
    )
    subscription_partitions_max: Annotated[
        int, Meta(ge=1, description="Partitions that one subscription may span.")
    ] = 100
    admin_default: Annotated[
        str,
        Meta(
            pattern="^[^:]+:[^:]+$",
            description="The administrator that always is one and can't be removed, as `data_type:value`.",
        ),
    ] = "service:stups_nakadi"

    # Streams
    commit_timeout_max_s: Annotated[
        int, Meta(ge=1, le=3_600, description="The longest, and the default, time that a consumer has to commit.")
    ] = 60
    stream_timeout_default_s: Annotated[
        int, Meta(ge=1, description="How long a stream lasts on average if the client does not say.")
    ] = 3_600
    stream_timeout_spread_s: Annotated[
        int,
        Meta(
            ge=0, description="By how much that differs at random from stream to stream, so that not all end at once."
        ),
    ] = 600
    stream_timeout_max_s: Annotated[int, Meta(ge=1, description="The longest that a stream may last.")] = 4_200
    stream_memory_bytes_max: Annotated[
        int, Meta(ge=10_000, description="Events that one stream may hold back until its batch is full.")
    ] = 50_000_000
    streams_per_partition_max: Annotated[
        int,
        Meta(
            ge=1,
            description="Low-level streams of one client on one partition of an event type; more are answered 429.",
        ),
    ] = 5

    # The embedded event store
    cache_bytes_max: Annotated[
        int,
        Meta(ge=0, description="Memory of each worker for the events published last, from which consumers are served."),
    ] = 67_108_864

    def __repr__(self) -> str:
        shown = (f"{setting.name}={setting.show(getattr(self, setting.name))!r}" for setting in SETTINGS.values())
        return f"Config({', '.join(shown)})"


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
        try:
            return msgspec.convert(value, self.hint, dec_hook=lambda kind, raw: kind(raw))
        except msgspec.ValidationError as ex:
            raise ConfigError(f"must be {self.expected}" + ("" if self.secret else f", not {value!r}")) from ex

    def show(self, value: object) -> str:
        """A value for people to read, masked if it is a secret."""
        return "" if value is None else _MASK if self.secret else str(value)


def _settings() -> Iterator[tuple[str, Setting]]:
    for name, hint in get_type_hints(Config, include_extras=True).items():
        annotated, meta = get_args(hint)
        kind = next(iter(get_args(annotated)), annotated)
        yield name, Setting(name, kind, hint, meta)


SETTINGS: Mapping[str, Setting] = MappingProxyType(dict(_settings()))


class Loaded(NamedTuple):
    """The settings, and for each one where its value comes from."""

    config: Config
    sources: Mapping[str, str]


class _Source(NamedTuple):
    """One place where values are given, weaker than the next."""

    label: str
    spell: Callable[[str], str]
    values: Mapping[str, object]


def load(
    flags: Mapping[str, object] = MappingProxyType({}),
    *,
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Loaded:
    """Gather the settings from all sources.

    Args:
        flags: values from the command line by the names of the settings; None where nothing was given.
        file: the TOML file that the command line names.
        environ: the environment; an empty variable counts as not set.

    Raises:
        ConfigError: names every unknown setting and every value that can't be used.
    """
    errors: list[str] = []
    values: dict[str, Any] = {}
    sources = dict.fromkeys(SETTINGS, DEFAULT)
    for source in (_file(file, environ), _environment(environ), _flags(flags)):
        for name, value in source.values.items():
            try:
                values[name] = _setting(name, source.spell).parse(value)
                sources[name] = source.label
            except ConfigError as ex:
                errors.append(f"{source.label}: {source.spell(name)} {ex}")
    config = Config(**values)
    if problems := errors or _contradictions(config):
        raise ConfigError("\n".join(problems))
    return Loaded(config, sources)


def _file(named: Path | None, environ: Mapping[str, str]) -> _Source:
    path = named or Path(environ.get(FILE_VARIABLE) or FILE)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as ex:
        if named or environ.get(FILE_VARIABLE):
            raise ConfigError(f"There is no configuration file {path}.") from ex
        values = {}
    except OSError as ex:
        raise ConfigError(f"The configuration file {path} can't be read: {ex.strerror}.") from ex
    except ValueError as ex:  # not TOML, or not UTF-8
        raise ConfigError(f"{path} is not a TOML file: {ex}.") from ex
    return _Source(str(path), str, values)


def _environment(environ: Mapping[str, str]) -> _Source:
    values = {
        variable.removeprefix(PREFIX).lower(): value
        for variable, value in environ.items()
        if variable.startswith(PREFIX) and variable != FILE_VARIABLE and value
    }
    return _Source("environment", lambda name: PREFIX + name.upper(), values)


def _flags(flags: Mapping[str, object]) -> _Source:
    given = {name: value for name, value in flags.items() if value is not None}
    return _Source(COMMAND_LINE, lambda name: "--" + name.replace("_", "-"), given)


def _setting(name: str, spell: Callable[[str], str]) -> Setting:
    if (setting := SETTINGS.get(name)) is not None:
        return setting
    nearest = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
    advice = f"did you mean {spell(nearest[0])}?" if nearest else "`rioni config show` lists all settings."
    raise ConfigError(f"is not a setting; {advice}")


def _contradictions(config: Config) -> list[str]:
    """Settings that are fine alone but not together."""
    longest_s = config.stream_timeout_default_s + config.stream_timeout_spread_s
    rules = (
        (config.retention_min_ms <= config.retention_default_ms, "retention_min_ms is above retention_default_ms"),
        (config.retention_default_ms <= config.retention_max_ms, "retention_default_ms is above retention_max_ms"),
        (config.partitions_default <= config.partitions_max, "partitions_default is above partitions_max"),
        (config.event_bytes_max <= config.body_bytes_max, "event_bytes_max is above body_bytes_max"),
        (
            config.stream_timeout_spread_s <= config.stream_timeout_default_s,
            "stream_timeout_spread_s is above stream_timeout_default_s",
        ),
        (
            longest_s <= config.stream_timeout_max_s,
            "stream_timeout_default_s with stream_timeout_spread_s is above stream_timeout_max_s",
        ),
    )
    return [f"settings: {text}" for holds, text in rules if not holds]
