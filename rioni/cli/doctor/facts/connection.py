"""Whether the broker answers, how fast, by which clock, with which certificate, and whether it accepts the token."""

import contextlib
import socket
import ssl
import time
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import SplitResult, urlsplit

import msgspec
from cryptography import x509

from rioni import __version__
from rioni.cli.doctor.model import NotLookedAt, source
from rioni.cli.doctor.site import REQUEST_S, Site
from rioni.client import ClientError


HTTPS_PORT = 443


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request that costs the broker nothing."""

    seconds: float
    """How long it took, connecting included."""
    clock_offset_s: float | None = None
    """How much later it is there than here; exact to a second."""


class Reach(msgspec.Struct, frozen=True):
    """Whether the broker answers."""

    url: str
    error: str = ""
    """Why it does not."""
    answer: Answer | None = None
    token: bool = False
    """Whether requests have one."""


class Access(msgspec.Struct, frozen=True):
    """Whether the broker accepts the token, and which version it is."""

    client: str
    """The version of this package."""
    broker: str = ""
    """That of the broker; empty where it does not say."""
    status: int = 200
    """401 or 403 where the token is refused."""
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
    return Reach(site.url, answer=Answer(seconds, offset_s), token=site.token is not None)


@source
def answer(site: Site, reach: Reach) -> Answer:
    """The answer to `/health`."""
    if reach.answer is None:
        raise NotLookedAt(reach.error or f"{site.url} does not answer")
    return reach.answer


@source
def access(site: Site) -> Access:
    """Ask `/version`, which needs a token where there is authentication."""
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
    """What there is to know of a certificate.

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
    """The certificate of a server, in DER; raises OSError, and ssl.SSLError where it is not trusted."""
    address = (parts.hostname or "", parts.port or HTTPS_PORT)
    with (
        socket.create_connection(address, timeout=REQUEST_S) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""
