"""The way to the broker: does it answer, how fast, by which clock, with which certificate, version and token."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit

import msgspec
from cryptography import x509
from packaging.version import InvalidVersion, Version

from rioni import __version__
from rioni.cli.doctor.diagnosis import ERROR, REQUEST_S, DoctorFinding, NotLookedAt, Site, check, error, source, warning
from rioni.client import ClientError
from rioni.domain.access.addresses import is_loopback


# Facts about the connection: the broker's response time, clock and certificate, and whether it accepts the token.

HTTPS_PORT = 443


class BrokerAnswer(msgspec.Struct, frozen=True):
    """The answer to a request that costs the broker nothing."""

    seconds: float
    """Seconds that it took, connecting included."""
    clock_offset_s: float | None = None
    """Seconds by which the clock there is ahead of the one here; exact to a second."""


class Reach(msgspec.Struct, frozen=True):
    """Whether the broker answers."""

    url: str
    error: str = ""
    """Why it does not."""
    answer: BrokerAnswer | None = None
    token: bool = False
    """Whether requests have one."""


class Access(msgspec.Struct, frozen=True):
    """Whether the broker accepts the token, and which version it is."""

    client: str
    """The version of this package."""
    broker: str = ""
    """The version of the broker; empty if the broker does not report it."""
    status: int = 200
    """The status of the answer: 401 or 403 if the token is refused."""
    detail: str = ""
    token_error: str = ""
    """Why there is no token although there should be."""


class Certificate(msgspec.Struct, frozen=True):
    """The certificate that the broker shows."""

    host: str
    subject: str
    names: list[str]
    not_before: datetime
    not_after: datetime
    error: str = ""
    """Why clients do not trust it."""


@source
def reach(site: Site) -> Reach:
    """Ask `/health`."""
    before, began_s = time.time(), time.perf_counter()
    try:
        response = site.client.request("GET", "/health", headers={"Accept": "text/plain"})
    except ClientError as ex:
        return Reach(site.url, error=str(ex), token=site.token is not None)
    seconds = time.perf_counter() - began_s
    if response.text.strip() != "OK":
        return Reach(site.url, error=f"{site.url} answers, but not as a broker does", token=site.token is not None)
    offset_s = None
    with contextlib.suppress(KeyError, ValueError, TypeError):
        # The header has whole seconds: on average it is half a second late.
        there_s = parsedate_to_datetime(response.headers["Date"]).timestamp() + 0.5
        offset_s = there_s - (before + seconds / 2)
    return Reach(site.url, answer=BrokerAnswer(seconds, offset_s), token=site.token is not None)


@source
def answer(site: Site, reach: Reach) -> BrokerAnswer:
    """The answer to `/health`."""
    if reach.answer is None:
        raise NotLookedAt(reach.error or f"{site.url} does not answer")
    return reach.answer


@source
def access(site: Site) -> Access:
    """Ask `/version`, which needs a token if there is authentication."""
    response = site.client.request("GET", "/version", accept=(401, 403))
    found = msgspec.json.decode(response.content, type=dict[str, object])
    if not response.is_success:
        detail = str(found.get("detail") or found.get("title") or "")
        return Access(__version__, status=response.status_code, detail=detail, token_error=site.token_error)
    return Access(__version__, broker=str(found.get("version", "")), token_error=site.token_error)


@source
def certificate(site: Site) -> Certificate:
    """Read the certificate of the broker, and check it as a client does."""
    parts = urlsplit(site.url)
    if parts.scheme != "https":
        raise NotLookedAt("the URL is not one of https", wanted=False)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    shown = x509.load_der_x509_certificate(_handshake(parts, trusting))
    problem = ""
    try:
        _handshake(parts, ssl.create_default_context(cafile=site.ca_certificate))
    except ssl.SSLError as ex:
        problem = getattr(ex, "verify_message", None) or str(ex)
    return described(shown, parts.hostname or "", problem)


def described(shown: x509.Certificate, host: str, problem: str = "") -> Certificate:
    """The facts about a certificate.

    Args:
        shown: the certificate.
        host: the name that clients use.
        problem: why they do not trust it.
    """
    names: list[str] = []
    with contextlib.suppress(x509.ExtensionNotFound):
        alternatives = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(each.value) for each in alternatives]
    return Certificate(
        host,
        shown.subject.rfc4514_string(),
        names,
        shown.not_valid_before_utc,
        shown.not_valid_after_utc,
        problem,
    )


def _handshake(parts: SplitResult, context: ssl.SSLContext) -> bytes:
    """The certificate of a server, in DER; raises OSError, and ssl.SSLError if it is not trusted."""
    address = (parts.hostname or "", parts.port or HTTPS_PORT)
    with (
        socket.create_connection(address, timeout=REQUEST_S) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""


# Checks of the connection to the broker: whether it answers, its response time, clock, certificate and version.

GROUP = "Connection"
SLOW_S = 1.0
CLOCK_WARNING_S = 5.0
CLOCK_ERROR_S = 30.0
"""The largest difference between clocks that Kafka and tokens tolerate."""
EXPIRES_SOON = timedelta(days=21)
_CERTIFICATE = "Renew it; the broker reads the files again when they change: docs/operating/security.md#tls"


@check(GROUP, ERROR)
def reachable(reach: Reach) -> Iterator[DoctorFinding]:
    """Whether the broker answers `GET /health`."""
    if reach.error:
        yield error(
            reach.error,
            "Check the URL (`rioni context show`), the network, and whether the broker runs; on its host, "
            "`rioni doctor --data DIRECTORY --log FILE` searches for the cause.",
        )


@check(GROUP)
def response_time(answer: BrokerAnswer) -> Iterator[DoctorFinding]:
    """How long the cheapest request takes."""
    if answer.seconds > SLOW_S:
        yield warning(
            f"The broker took {answer.seconds:.1f} s to answer GET /health.",
            "Look at the load of its machine and at the findings about metrics; more workers or nodes share the "
            "load: docs/operating/sizing.md",
        )


@check(GROUP)
def unencrypted(reach: Reach) -> Iterator[DoctorFinding]:
    """Whether a token is sent through a network without TLS."""
    parts = urlsplit(reach.url)
    if parts.scheme == "http" and reach.token and not is_loopback(parts.hostname or ""):
        yield warning(
            f"The token is sent to {parts.hostname} without encryption.",
            "Use https, of the broker or of a proxy in front of it: docs/operating/security.md#tls",
        )


@check(GROUP, ERROR)
def clock(answer: BrokerAnswer) -> Iterator[DoctorFinding]:
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
def token(access: Access) -> Iterator[DoctorFinding]:
    """Whether there is a token if one is needed, and whether the broker accepts it."""
    if access.token_error:
        yield error(access.token_error, "`rioni context show` shows where the token comes from.")
    if access.status != 200:  # noqa: PLR2004 - OK
        yield error(
            f"The broker answers {access.status} to this token. {access.detail}",
            "Show it a valid one with the scope uid: RIONI_TOKEN, or `rioni context add --token-command`; most checks "
            "need one of an administrator or reader of the broker.",
        )


@check(GROUP)
def version(access: Access) -> Iterator[DoctorFinding]:
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
def tls_certificate(certificate: Certificate) -> Iterator[DoctorFinding]:
    """The certificate that the broker shows: whether clients trust it, its host name, when it expires."""
    if certificate.error:
        yield error(
            f"Clients do not trust the certificate of {certificate.host} ({certificate.subject}, for "
            f"{', '.join(certificate.names) or 'no name'}): {certificate.error}.",
            "Name the authority with --ca-certificate, or get a certificate of a known one for this host name: "
            "docs/operating/security.md#tls",
        )
    yield from expiry(certificate, "The certificate that the broker shows")


def expiry(certificate: Certificate, what: str) -> Iterator[DoctorFinding]:
    """Whether a certificate is valid now, and for how long."""
    now = datetime.now(UTC)
    if certificate.not_after <= now:
        yield error(f"{what} has expired on {certificate.not_after:%Y-%m-%d}.", _CERTIFICATE)
    elif certificate.not_after - now < EXPIRES_SOON:
        days = (certificate.not_after - now).days
        yield warning(f"{what} expires on {certificate.not_after:%Y-%m-%d}, in {days} days.", _CERTIFICATE)
    if certificate.not_before > now:
        yield error(f"{what} is valid from {certificate.not_before:%Y-%m-%d %H:%M} UTC on only.", _CERTIFICATE)
