"""The options of the formats `rioni` and `rioni.log`: texts, as Spark has them, checked and typed."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from rioni.client import Client
from rioni.client.retries import RETRY_S
from rioni.domain.errors import Invalid


KNOWN = {
    "url",
    "token",
    "ca_certificate",
    "event_type",
    "subscription",
    "from",
    "to",
    "events_per_task",
    "events_per_batch",
    "events_per_request",
    "quiet_s",
    "timeout_s",
    "retry_s",
    "job",
    "pushdown",
}
OF_SPARK = {"path", "checkpointlocation"}
"""Options of Spark's own that it shows to sources too."""
EVENTS_MAX = 1_000_000


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a user of the format has given; can be pickled."""

    url: str
    token: str | None = None
    ca_certificate: Path | None = None
    event_types: tuple[str, ...] = ()
    subscription: str | None = None
    start: str = "begin"
    end: str = "end"
    events_per_task: int = 50_000
    events_per_batch: int = 100_000
    events_per_request: int = 1_000
    quiet_s: int = 5
    timeout_s: int = 600
    retry_s: int = int(RETRY_S)
    job: str | None = None
    pushdown: bool = False

    def client(self) -> Client:
        """A client of the broker; close it.

        Raises:
            Invalid: the URL or the certificate can't be used.
        """
        try:
            # Without this option no token is sent: one of the environment may be for another broker.
            token = self.token or (lambda: None)
            retry_s = min(self.retry_s, self.timeout_s)
            if "@" in urlsplit(self.url).netloc:
                raise Invalid("The URL of a broker holds no user and password: give a token.")
            return Client(self.url, token=token, ca_certificate=self.ca_certificate, retry_s=retry_s)
        except ValueError as ex:
            raise Invalid(f"{ex}.") from ex


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source.

    Args:
        given: by name, in lower case.

    Raises:
        Invalid: an option is unknown, missing, or has a value that it can't have.
    """
    if unknown := sorted(set(given) - KNOWN - OF_SPARK):
        raise Invalid(f"Unknown options: {', '.join(unknown)}. There are {', '.join(sorted(KNOWN))}.")
    if not given.get("url"):
        raise Invalid("The option url is missing; it is the base URL of a broker, like http://localhost:8080.")
    certificate = given.get("ca_certificate")
    names = tuple(dict.fromkeys(name.strip() for name in given.get("event_type", "").split(",") if name.strip()))
    return SourceOptions(
        url=given["url"],
        token=given.get("token"),
        ca_certificate=Path(certificate) if certificate else None,
        event_types=names,
        subscription=given.get("subscription"),
        start=given.get("from", "begin"),
        end=given.get("to", "end"),
        events_per_task=_number(given, "events_per_task", 50_000, EVENTS_MAX),
        events_per_batch=_number(given, "events_per_batch", 100_000, 100 * EVENTS_MAX),
        events_per_request=_number(given, "events_per_request", 1_000, 10_000),
        quiet_s=_number(given, "quiet_s", 5, 60),
        timeout_s=_number(given, "timeout_s", 600, 3_600),
        retry_s=_number(given, "retry_s", int(RETRY_S), 3_600, smallest=0),
        job=given.get("job"),
        pushdown=_flag(given, "pushdown"),
    )


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise Invalid(f"{name} is {text}, but must be true or false.")
    return text == "true"


def _number(given: Mapping[str, str], name: str, default: int, largest: int, *, smallest: int = 1) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or not smallest <= int(text) <= largest:
        raise Invalid(f"{name} is {text}, but must be a number from {smallest} to {largest}.")
    return int(text)
