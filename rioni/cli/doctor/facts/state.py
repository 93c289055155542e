"""What the broker says of itself: health, settings that administrators change, storages, rebuilds, log, refusals."""

from datetime import UTC, datetime
from itertools import islice

import msgspec

from rioni.cli.doctor.model import NotLookedAt, source
from rioni.cli.doctor.site import Site
from rioni.client import errors
from rioni.client.models.administration import Admins, Blacklist, Feature, Health, Node, Rebuild, Storage
from rioni.client.models.audit import Denial
from rioni.domain.errors import Malformed
from rioni.domain.transparency.checkpoint import parse_checkpoint
from rioni.domain.transparency.signed_note import Note, parse_note


DENIALS_MAX = 1_000
_COSIGNATURE_BYTES = 72
"""Time and signature; the signature of the log itself has no time."""


class LogState(msgspec.Struct, frozen=True):
    """The internal log, and what proves that it was only extended."""

    head: int
    """Its last position."""
    recorded_at: datetime | None = None
    """When the last entry was recorded; None where there is none."""
    size: int = 0
    """Entries that the newest checkpoint covers."""
    checkpoint_error: str = ""
    """Why there is no checkpoint."""
    cosigned_size: int | None = None
    """Entries that the newest checkpoint covers that a witness has cosigned; None if there is none."""
    cosigned_at: datetime | None = None
    """When the last witness did."""
    checkpoint: str = ""
    """The newest checkpoint itself."""


class _Entry(msgspec.Struct):
    recorded_at: datetime


class _Page(msgspec.Struct):
    items: list[_Entry]


@source
def live(site: Site) -> Health:
    """Ask `/livez`."""
    return site.client.monitoring.live()


@source
def ready(site: Site) -> Health:
    """Ask `/readyz`."""
    return site.client.monitoring.ready()


@source
def nodes(site: Site) -> list[Node]:
    """Ask for the nodes and their workers."""
    return list(site.client.monitoring.nodes())


@source
def features(site: Site) -> list[Feature]:
    """Ask for all switches."""
    return list(site.client.settings.features())


@source
def blacklist(site: Site) -> Blacklist:
    """Ask what is blocked."""
    return site.client.settings.blacklist()


@source
def admins(site: Site) -> Admins:
    """Ask who administers the broker."""
    return site.client.settings.admins()


@source
def storages(site: Site) -> list[Storage]:
    """Ask for all storages."""
    return list(site.client.storages.list())


@source
def rebuilds(site: Site) -> list[Rebuild]:
    """Ask for the last rebuilds."""
    return list(site.client.rebuilds.list())


@source
def denials(site: Site) -> list[Denial]:
    """Ask for the newest requests that were refused."""
    return list(islice(site.client.audit.denials(), DENIALS_MAX))


@source
def log(site: Site) -> LogState:
    """Ask for the end of the log first, and for checkpoints then: these have to cover it."""
    # The first checkpoint of all makes the key, and the log records it; that is not for us to do.
    if not site.client.log.keys():
        raise NotLookedAt("no checkpoint of the log was ever asked for, so it has no key", wanted=False)
    response = site.client.request("GET", "/audit", params={"limit": 1})
    newest = msgspec.json.decode(response.content, type=_Page).items
    state = LogState(int(response.headers["Log-Position"]), newest[0].recorded_at if newest else None)
    try:
        text = site.client.log.checkpoint()
        note, size = parsed(text)
    except (errors.Problem, Malformed) as ex:
        return msgspec.structs.replace(state, checkpoint_error=str(ex))
    state = msgspec.structs.replace(state, size=size, checkpoint=text)
    try:
        note, size = parsed(site.client.log.checkpoint(cosigned=True))
    except errors.NotFound:
        return state
    return msgspec.structs.replace(state, cosigned_size=size, cosigned_at=_cosigned_at(note))


def parsed(text: str) -> tuple[Note, int]:
    """The checkpoint of a signed note, and its size; raises Malformed."""
    note = parse_note(text.encode())
    return note, parse_checkpoint(note.text).size


def _cosigned_at(note: Note) -> datetime | None:
    times = [int.from_bytes(each.data[:8]) for each in note.signatures if len(each.data) == _COSIGNATURE_BYTES]
    return datetime.fromtimestamp(max(times), UTC) if times else None
