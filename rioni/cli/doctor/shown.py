"""The facts that `rioni doctor` may show: one table names each of them, with its form; everything else is hidden."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

import rioni
from rioni.cli.doctor.diagnosis import Missing


HIDDEN = "(a text that is not shown)"
EACH = "*"
"""A member of a rule that stands for all names, if they have the form `NAME`."""

# --- The forms of texts ---

TEXT = "text"
"""A sentence: only those of its words are shown that belong to Rioni's own messages, short numbers, and known names."""
LOG = "log"
"""Lines of a log, in text or JSON: as sentences, with the members of `LOG_FIELDS`."""
PLAIN = re.compile(r"(?!)")
"""No text at all."""
NAME = re.compile(r"[\w.*()-]{1,255}")
ACTOR = re.compile(r"[\w.*()@+:-]{1,255}")
"""The name of a client, such as `jane@example.org`."""
_NUMBERS = r"v?\d{1,9}(?:\.(?:\d{1,9}|\*))*(?:(?:a|b|rc)\d{1,4})?(?:\.(?:post|dev)\d{1,4})?"
VERSION = re.compile(_NUMBERS)
_BOUND = rf"(?:===?|[<>!~]=|[<>]) ?{_NUMBERS}"
REQUIREMENT = re.compile(rf"[\w.-]{{1,100}}(?:\[[\w,-]{{1,100}}\])? ?(?:{_BOUND}(?:, ?{_BOUND})*)?")
PATH = re.compile(r"[\w./+~-]{1,4096}")
ORIGIN = re.compile(rf"process \d{{1,9}}|command line|{PATH.pattern}")
URL = re.compile(r"https?://(?:[\w.-]+|\[[\da-fA-F:]+\])(?::\d{1,5})?(?:/[\w./-]*)?")
_HOST = r"(?:[\w.-]+|\[?[\da-fA-F:.]+\]?)(?::\d{1,5})?"
HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w./-]*)?")
NAMES = re.compile(r"[\w.:*()-]{1,255}(?:,[\w.:*()-]{1,255})*")
SUBJECT = re.compile(r"(?:(?:CN|O|OU|C|L|ST)=[\w. *-]{1,100},?){0,10}")
CHECKPOINT = re.compile(r"[\w./:-]+\n\d+\n[A-Za-z0-9+/=]+\n\n(?:\u2014 [\w./:-]+ [A-Za-z0-9+/=]+\n)+")
NUMBER = re.compile(r"-?\d{1,15}|true|false")
SECRET = re.compile(r"\*\*\*")
"""The text shown instead of a secret setting."""
METRIC = re.compile(r"(?:rioni|nakadi|process|python)_\w{1,200}")
LABEL = re.compile(r"[\w.:/<>{}+()*-]{0,255}")

# --- The facts, by source ---


def _members(form: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), form)


SETTINGS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    _members(
        NUMBER,
        "allow_unauthenticated answers_bytes_max answers_bytes_per_client_max append_timeout_s batch_events_max "
        "batch_values_max bodies_bytes_max bodies_bytes_per_client_max body_bytes_max body_bytes_per_s_min "
        "body_timeout_s cache_bytes_max commit_timeout_max_s compaction_lag_s compiled_schemas_bytes_max console "
        "database_connections_max database_lock_timeout_s event_bytes_max events_anchor_interval_s header_timeout_s "
        "idempotency_window_s kafka_request_timeout_s keep_alive_s kpi_streams_interval_s metrics_event_types_max "
        "metrics_history_series_max metrics_subscriptions_max partitions_default partitions_max port "
        "quota_bytes_per_second quota_change_bytes_per_minute quota_changes_per_minute quota_events_per_second "
        "retention_default_ms retention_interval_s retention_max_ms retention_min_ms shutdown_timeout_s "
        "stream_memory_bytes_max stream_timeout_default_s stream_timeout_jitter_s stream_timeout_max_s "
        "streams_per_client_max streams_per_partition_max subscription_partitions_max timeline_switch_timeout_s "
        "worker_stream_memory_bytes_max workers zookeeper_session_timeout_s",
    )
    | _members(
        PATH,
        "auth_issuers auth_tokens base_path data kafka_options log_signing_key tls_certificate tls_key "
        "zookeeper_options",
    )
    | _members(HOSTS, "allowed_hosts host kafka log_origin trusted_proxies zookeeper")
    | _members(URL, "allowed_origins auth_tokeninfo_local auth_tokeninfo_remote console_oidc_issuer")
    | _members(
        NAMES,
        "all_data_access audit_owning_application audit_readers auth_mode auth_realms auth_service_realms "
        "console_oidc_client_id console_oidc_scope console_oidc_token default_admin kpi_owning_application log_format "
        "log_level owning_applications system_events_authorization",
    )
    | _members(SECRET, "console_oidc_client_secret database pseudonym_salt")
)
"""The settings that are shown, by name."""
LABELS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    _members(
        LABEL,
        "api application client code event_type le method node policy pool quantile reason route slo_bucket status "
        "storage subscription worker",
    )
)
"""The labels of metrics that are shown."""
LOG_FIELDS: Mapping[str, Any] = MappingProxyType(
    _members(
        NAME,
        "attempt attempts authenticated connections count delay_s error_id event_type event_types events host kafka "
        "method node outcome partition partitions pid port position request_length response_length response_time_ms "
        "seconds status status_code stream streams subscription timeline topic version worker workers",
    )
    | _members(PATH, "file")
    | _members(TEXT, "after before error exception reason")
)
"""The members of a line of the log that are shown."""
_TEXTS: Sequence[tuple[Any, str]] = (
    ({}, "answer clock_sync disk fsyncs memory nodes.workers processes.items reach.answer"),
    (
        TEXT,
        """
        access.detail access.token_error certificate.error certificate_file.error data_directory.error
        data_directory.layout last_lines.error live.checks.*.detail live.checks.*.reason live.checks.*.warnings
        log.checkpoint_error logs.error overdue_timelines.partial reach.error ready.checks.*.detail
        ready.checks.*.reason ready.checks.*.warnings rebuilds.detail secret_files.error servers.error settings.error
        subscriptions.items.lags.error subscriptions.partial
        """,
    ),
    (LOG, "last_lines.text logs.text"),
    (
        PLAIN,
        """
        data_directory.wal_bytes.* storages.kafka_configuration.min_insync_replicas
        storages.kafka_configuration.replication_factor
        """,
    ),
    (
        NAME,
        """
        admins.admins.data_type admins.admins.value admins.readers.data_type admins.readers.value
        admins.writers.data_type admins.writers.value blacklist.consumers.apps blacklist.consumers.event_types
        blacklist.producers.apps blacklist.producers.event_types data_directory.foreign data_directory.stores
        data_directory.unknown denials.method denials.realm event_types.name event_types.open_to event_types.owner
        features.feature file_system.kind file_system.options installation.conflicts.package installation.drivers
        live.checks.*.status live.status live.worker nodes.id overdue_timelines.timelines.event_type
        pins.different.package port.command ready.checks.*.status ready.status ready.worker rebuilds.id rebuilds.into
        rebuilds.phase rebuilds.state rebuilds.tables secret_files.setting servers.setting storages.id
        storages.storage_type subscriptions.items.group subscriptions.items.id subscriptions.items.lags.event_type
        subscriptions.items.lags.partition subscriptions.items.owner unused
        """,
    ),
    (ACTOR, "denials.actor"),
    (
        VERSION,
        """
        access.broker access.client installation.conflicts.installed installation.packages.* installation.python
        installation.rioni installation.sqlite nodes.version pins.different.installed
        """,
    ),
    (REQUIREMENT, "installation.conflicts.requirement pins.different.requirement"),
    (
        PATH,
        """
        data_directory.path file_system.mount_point last_lines.path logs.path pins.file processes.data
        secret_files.path
        """,
    ),
    (ORIGIN, "settings.origin"),
    (URL, "reach.url"),
    (
        HOSTS,
        """
        certificate.host certificate.names certificate_file.host certificate_file.names denials.address nodes.host
        servers.address storages.kafka_configuration.bootstrap_servers
        """,
    ),
    (SUBJECT, "certificate.subject certificate_file.subject"),
    (CHECKPOINT, "log.checkpoint"),
    (METRIC, "metrics.series.name"),
    (LABELS, "metrics.series.labels"),
    ({name: [form, ORIGIN] for name, form in SETTINGS.items()}, "settings.values"),
)
"""The members of facts that are shown, by their form, in addition to numbers, times and truth values of structs."""


def _by_source() -> Mapping[str, Any]:
    table: dict[str, Any] = {}
    for form, paths in _TEXTS:
        for *above, name in (path.split(".") for path in paths.split()):
            rule = table
            for each in above:
                rule = rule.setdefault(each, {})
            rule[name] = form
    return MappingProxyType(table)


FACTS = _by_source()
"""The facts that are shown, by the name of their source, and the form of each."""
INTERNAL = frozenset({"config"})
"""Sources of facts for decisions only: no finding contains them, and no bundle."""


# --- Reduces facts to those that are shown ---


class Shown:
    """Replaces everything by `HIDDEN` that is not in the table, or has another form there.

    Args:
        named: the URL and the paths that the user has named, which sentences may contain.
    """

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._paths: set[str] = set()
        for each in named:
            self.value(each, URL if "://" in each else PATH)

    def facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The facts of all sources, of the same types; what is hidden is a text."""
        # Twice, since a sentence may contain names of facts that come later.
        for _ in range(2):
            found = {name: self._fact(name, each) for name, each in facts.items()}
        return found

    def _fact(self, name: str, fact: Any) -> Any:
        if isinstance(fact, Missing):
            return Missing(self.text(fact.reason), fact.wanted)
        return fact if name in INTERNAL else self.value(fact, FACTS.get(name))

    def value(self, value: Any, rule: Any) -> Any:
        """A fact, reduced by a rule: a form, also of the items of a list, a mapping by member, or a list by place."""
        if value is None or isinstance(value, bool | int | float | datetime):
            return value
        if isinstance(value, list | tuple) and rule is not None:
            rules = rule if isinstance(rule, list) else [rule] * len(value)
            return type(value)(map(self.value, value, rules))
        if isinstance(value, str):
            return self._of_form(value, rule)
        if isinstance(value, Mapping) and isinstance(rule, Mapping):
            return dict(self._member(str(name), each, rule) for name, each in value.items())
        if isinstance(value, msgspec.Struct) and isinstance(rule, Mapping):
            members = {name: self.value(getattr(value, name), rule.get(name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **members)
        return HIDDEN

    def text(self, text: str) -> str:
        """A sentence, with `HIDDEN` instead of each run of words that are not shown."""
        return self._tokens(text, self._is_shown)

    def _of_form(self, value: str, form: Any) -> str:
        if form == TEXT:
            return self.text(value)
        if form == LOG:
            return "\n".join(map(self._log_line, value.split("\n")))
        if not isinstance(form, re.Pattern):
            return HIDDEN
        if not value.strip():
            return value
        if not form.fullmatch(value):
            return HIDDEN
        self._known.add(value)
        if form is PATH:
            self._paths.add(value)
        return value

    def _member(self, name: str, value: Any, rule: Mapping[str, Any]) -> tuple[str, Any]:
        if name in rule and name != EACH:
            return name, self.value(value, rule[name])
        if EACH in rule and NAME.fullmatch(name):
            self._known.add(name)
            return name, self.value(value, rule[EACH])
        return HIDDEN, HIDDEN

    def _tokens(self, text: str, is_shown: Callable[[str], bool]) -> str:
        parts = (each if not each or each.isspace() or is_shown(each) else HIDDEN for each in _SPACES.split(text))
        return _HIDDEN_TWICE.sub(HIDDEN, "".join(parts))

    def _is_shown(self, token: str) -> bool:
        core = token.strip(_AROUND)
        if not core or token in self._known or core in self._known or _PLAIN_TOKEN.fullmatch(core):
            return True
        path = next((each for each in self._paths if core.startswith(f"{each}/")), None)
        parts = [core] if path is None else core[len(path) + 1 :].split("/")
        return all(part.lower() in words() or part in self._known for part in parts)

    def _log_line(self, line: str) -> str:
        if found := _SOURCE_LINE.fullmatch(line):
            return f'  File "{found[1]}", line {found[2]}'
        if line.startswith("{"):
            try:
                members = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, RecursionError):
                return HIDDEN
            line = " ".join(_of_json(members))
        return self._tokens(line, self._is_shown_in_log)

    def _is_shown_in_log(self, token: str) -> bool:
        name, equals, value = token.partition("=")
        if not equals or name not in LOG_FIELDS:
            return self._is_shown(token)
        form = LOG_FIELDS[name]
        return self._is_shown(value) if form == TEXT else form.fullmatch(value.strip(_AROUND)) is not None


def _of_json(members: dict[str, Any]) -> Iterator[str]:
    """The parts of a line of the log in JSON, as in text."""
    yield str(members.get("timestamp", ""))
    yield f"[{members.get('level', '')}] {members.get('message', members.get('event', ''))}"
    if "logger" in members:
        yield f"[{members['logger']}]"
    for name, value in members.items():
        if name in LOG_FIELDS and isinstance(value, str | int | float):
            yield f"{name}={value}"


# --- The words of sentences: those of messages of the program itself, the operating system and HTTP ---

FOLDER = Path(rioni.__file__).parent
WITHOUT = ("testing", "cli/cheats", "console")
"""Folders with examples, which are no messages."""
OTHERS = "Errno SSL certificate_verify_failed self-signed"
"""Words of Python's and OpenSSL's messages."""
_LITERAL = re.compile(r'"""(?:.|\n)*?"""|"((?:[^"\\\n]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z]+")
_SPACES = re.compile(r"(\s+)")
_AROUND = "()[]{}<>'\"`.,:;!?|=-\u2014"
_PLAIN_TOKEN = re.compile(
    r"[-+]?\d{1,3}(?:[.,:]\d{1,3})*(?:%|s|ms|h|d|kB|MB|GB|MiB|GiB)?"  # a short number, or one with separators
    r"|\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:\d\d)?)?"  # a time
    r"|rioni(?:\.[a-z_]+)*"  # a module
    r"|https?://(?:localhost|127\.0\.0\.1)(?::\d{1,5})?"  # this machine
    r"|(?:[a-z_]+\.)*[A-Z][A-Za-z]+(?:Error|Exception|Warning|Timeout|Interrupt)"
)
_HIDDEN_TWICE = re.compile(rf"{re.escape(HIDDEN)}(?:[^\S\n]+{re.escape(HIDDEN)})+")
_SOURCE_LINE = re.compile(r'\s+File "[^"]*?(rioni/[\w/]+\.py|\w+\.py)", line (\d+), in (?:\w+|<\w+>)')


@cache
def words() -> frozenset[str]:
    """All words, in lower case: the letters of each, and with what joins them in a message."""
    texts = [OTHERS, *(os.strerror(number) for number in range(1, 200)), *(each.phrase for each in HTTPStatus)]
    for path in FOLDER.rglob("*.py"):
        if not path.relative_to(FOLDER).as_posix().startswith(WITHOUT):
            texts += _LITERAL.findall(path.read_text(errors="replace"))
    joined = (word.strip(_AROUND).lower() for text in texts for word in text.split())
    letters = {word.lower() for text in texts for word in _WORD.findall(text)}
    return frozenset(letters.union(word for word in joined if word[:1].isalpha()))
