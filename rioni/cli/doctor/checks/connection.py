"""Checks of the way to the broker: does it answer, how fast, by which clock, with which certificate and version."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from packaging.version import InvalidVersion, Version

from rioni.cli.doctor.facts.connection import Access, Answer, Certificate, Reach
from rioni.cli.doctor.model import ERROR, Finding, check, error, warning
from rioni.domain.access.addresses import is_loopback


GROUP = "Connection"
SLOW_S = 1.0
CLOCK_WARNING_S = 5.0
CLOCK_ERROR_S = 30.0
"""What Kafka and tokens tolerate."""
EXPIRES_SOON = timedelta(days=21)
_CERTIFICATE = "Renew it; the broker reads the files again when they change: docs/operating/security.md#tls"


@check(GROUP, ERROR)
def reachable(reach: Reach) -> Iterator[Finding]:
    """Whether the broker answers `GET /health`."""
    if reach.error:
        yield error(
            reach.error,
            "Check the URL (`rioni context show`), the network, and whether the broker runs; on its host, "
            "`rioni doctor --data DIRECTORY --log FILE` looks for the cause.",
        )


@check(GROUP)
def response_time(answer: Answer) -> Iterator[Finding]:
    """How long the cheapest request takes."""
    if answer.seconds > SLOW_S:
        yield warning(
            f"The broker took {answer.seconds:.1f} s to answer GET /health.",
            "Look at the load of its machine and at the findings about metrics; more workers or nodes share the "
            "load: docs/operating/sizing.md",
        )


@check(GROUP)
def unencrypted(reach: Reach) -> Iterator[Finding]:
    """Whether a token is sent through a network without TLS."""
    parts = urlsplit(reach.url)
    if parts.scheme == "http" and reach.token and not is_loopback(parts.hostname or ""):
        yield warning(
            f"The token is sent to {parts.hostname} without encryption.",
            "Use https, of the broker or of a proxy in front of it: docs/operating/security.md#tls",
        )


@check(GROUP, ERROR)
def clock(answer: Answer) -> Iterator[Finding]:
    """The difference between the clock of the broker and the one here."""
    offset_s = answer.clock_offset_s
    if offset_s is None or abs(offset_s) <= CLOCK_WARNING_S:
        return
    finding = error if abs(offset_s) > CLOCK_ERROR_S else warning
    direction = "ahead of" if offset_s > 0 else "behind"
    yield finding(
        f"The clock of the broker is {abs(offset_s):,.0f} s {direction} the one here.",
        "Let both machines follow a time server (`timedatectl set-ntp true`): tokens expire by it, and with more than "
        "30 s between nodes and Kafka publishing fails.",
    )


@check(GROUP, ERROR)
def token(access: Access) -> Iterator[Finding]:
    """Whether there is a token where one is needed, and whether the broker accepts it."""
    if access.token_error:
        yield error(access.token_error, "`rioni context show` tells where the token comes from.")
    if access.status != 200:  # noqa: PLR2004 - OK
        yield error(
            f"The broker answers {access.status} to this token. {access.detail}",
            "Show it a valid one with the scope uid: RIONI_TOKEN, or `rioni context add --token-command`; most checks "
            "need one of an administrator or reader of the broker.",
        )


@check(GROUP)
def version(access: Access) -> Iterator[Finding]:
    """Whether broker and command line are of the same release."""
    try:
        here, there = Version(access.client).release[:2], Version(access.broker).release[:2]
    except InvalidVersion:
        return
    if here != there:
        yield warning(
            f"The broker has the version {access.broker}, this command line {access.client}.",
            f"Install the release {access.broker} of Rioni on this machine too.",
        )


@check(GROUP, ERROR)
def tls_certificate(certificate: Certificate) -> Iterator[Finding]:
    """The certificate that the broker shows: whether clients trust it, its host name, when it expires."""
    if certificate.error:
        yield error(
            f"Clients do not trust the certificate of {certificate.host} ({certificate.subject}, for "
            f"{', '.join(certificate.names) or 'no name'}): {certificate.error}.",
            "Name the authority with --ca-certificate, or get a certificate of a known one for this host name: "
            "docs/operating/security.md#tls",
        )
    yield from expiry(certificate, "The certificate that the broker shows")


def expiry(certificate: Certificate, what: str) -> Iterator[Finding]:
    """Whether a certificate is valid now, and for how long."""
    now = datetime.now(UTC)
    if certificate.not_after <= now:
        yield error(f"{what} has expired on {certificate.not_after:%Y-%m-%d}.", _CERTIFICATE)
    elif certificate.not_after - now < EXPIRES_SOON:
        days = (certificate.not_after - now).days
        yield warning(f"{what} expires on {certificate.not_after:%Y-%m-%d}, in {days} days.", _CERTIFICATE)
    if certificate.not_before > now:
        yield error(f"{what} is valid from {certificate.not_before:%Y-%m-%d %H:%M} UTC on only.", _CERTIFICATE)
