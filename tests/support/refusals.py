"""Requests on each way to an effect, each refused by one check."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from tests.support.builders import event_type_body
from tests.support.ways import (
    AVRO,
    BODY_BYTES_MAX,
    COMPACTED,
    CONSUMER,
    CURSOR,
    DEFINITION,
    ET,
    EVENT,
    EVENT_STREAM,
    GONE,
    OPEN,
    OWNED,
    OWNERS,
    PRODUCER,
    READ_ONLY,
    REQUESTS,
    RIGHTS,
    SECRET,
    SECRETS,
    STREAMED,
    UNKNOWN_ID,
    Refused,
    Request,
    Way,
    World,
    uid_of,
    without,
)


def refusals(world: World, way: Way) -> Iterator[Refused]:
    """Requests on a way, each refused by one check."""
    request, target, everything = REQUESTS.get(str(way), Request()), world.target(way), uid_of(RIGHTS)

    def refused(what: str, token: str | None, **others: Any) -> Refused:
        members = {"body": request.body, "headers": request.headers} | others
        return Refused(what, way.method, target, token, mode=world.mode, **members)

    foreign = {**request.headers, "Host": "rebound.example"}
    yield refused("for another host", f"{everything}/all", headers=foreign)
    if way.method != "GET" or target.partition("?")[0].endswith("/events"):
        for header, value in (("Origin", "https://other.example"), ("Sec-Fetch-Site", "cross-site")):
            yield refused("from another site", f"{everything}/all", headers={**request.headers, header: value})
    if way.scope:
        yield from _guarded_refusals(world, way, refused)


def _guarded_refusals(world: World, way: Way, refused: Callable[..., Refused]) -> Iterator[Refused]:
    """Refused requests on a way that is not public."""
    everything, event_type = uid_of(RIGHTS), REQUESTS.get(str(way), Request()).event_type
    for what, token in (("no token", None), ("unknown token", "unknown"), ("malformed token", "mal formed")):
        yield refused(what, token)
    needed = way.scope if world.mode == "full" else "uid"
    yield refused(f"without the scope {needed}", f"{everything}/not/{needed}")
    if world.mode == "realm":
        yield refused("of another realm", f"{everything}/stranger")
    hides = GONE if way.effect == "see what is gone" else ""
    for right in way.rights:
        yield refused(f"without {right}", f"{uid_of(without(right))}/all", hides=hides)
    if way.rights:
        yield refused("without rights", f"{uid_of(frozenset())}/all", hides=hides)
        yield refused("a namesake", f"{everything}/namesake", hides=hides)
    for side in way.sides:
        for entry in (f"{side}_APP/{everything}", f"{side}_ET/{event_type}"):
            yield refused(f"blacklisted as {entry}", f"{everything}/all", state={"blacklist": [entry]})
    if way.writes:
        yield refused("read-only", f"{everything}/all", state={"features": [READ_ONLY]}, statuses=(503,))


def further_refusals(world: World) -> Iterator[Refused]:
    """Requests refused on some of the ways only: features, owners of events, bodies, changes in between."""
    everything = f"{uid_of(RIGHTS)}/all"
    if world.mode == "basic":
        auditor = f"{uid_of(without('broker WRITE'))}/all"
        yield Refused(
            "an auditor creates", "POST", "/event-types", auditor, event_type_body(name="ways.auditors"), mode="basic"
        )
        yield Refused("an auditor", "GET", "/rights", auditor, hides='"POST /event-types":"allowed"', mode="basic")
        return
    if world.mode != "full":
        return
    helpless, owner = (f"{uid_of(without(right))}/all" for right in ("event type WRITE", "broker WRITE"))
    reader, events = f"{uid_of(without('broker READ'))}/all", f"/event-types/{OWNED}/events"
    of_broker = event_type_body(name="nakadi.dead.letter.queue")
    yield Refused("of the broker", "POST", "/event-types", owner, of_broker)
    deletion = {"features": ["disable_event_type_deletion"]}
    yield Refused("deletion is off", "DELETE", f"/event-types/{ET}", owner, state=deletion)
    forced = {"features": ["force_event_type_authz"]}
    yield Refused("no section", "DELETE", f"/event-types/{OPEN}", everything, state=forced)

    yield Refused("of another owner", "POST", events, owner, SECRETS, statuses=(422,), state=OWNERS)
    gone = f"/event-types/{OWNED}/deleted-events"
    yield Refused("of another owner", "POST", gone, owner, SECRETS, statuses=(422,), state=OWNERS)
    letters = f"/subscriptions/{world.names['owned']}/dead-letters"
    yield Refused("of another owner", "GET", letters, reader, hides=SECRET, state=OWNERS)
    for path in (f"{letters}/redrive", f"{letters}/redrive/preview"):
        forced_redrive = {"force": True}
        yield Refused("of another owner", "POST", path, reader, forced_redrive, hides='"redriven":1', state=OWNERS)
    for way in ("GET", "POST"):
        path = f"/subscriptions/{world.names['owned']}/events"
        body = (
            {"batch_limit": 1, "batch_flush_timeout": 1, "stream_timeout": 1, "commit_timeout": 1}
            if way == "POST"
            else None
        )
        yield Refused(
            "of another owner",
            way,
            f"{path}?{STREAMED}" if way == "GET" else path,
            reader,
            body,
            hides=SECRET,
            state=OWNERS,
        )
    begin = f"cursors={quote(json.dumps([CURSOR]))}"
    yield Refused("of another owner", "GET", f"{events}?{STREAMED}&{begin}", reader, hides=SECRET, state=OWNERS)

    large = b" " * (BODY_BYTES_MAX + 1)
    to = f"/event-types/{ET}/events"
    producer = {"blacklist": [f"{PRODUCER}_ET/{ET}"]}
    for headers, small in (({}, [EVENT]), ({"Content-Type": AVRO}, b"")):
        for target in (to, f"/event-types/{COMPACTED}/deleted-events"):
            yield Refused("may not write", "POST", target, helpless, small, headers=headers)
            yield Refused("may not write, large", "POST", target, helpless, large, headers=headers)
        yield Refused("blacklisted", "POST", to, everything, small, headers=headers, state=producer)
        yield Refused("blacklisted, large", "POST", to, everything, large, headers=headers, state=producer)

    yield from _of_rights(world)
    yield from _of_streams(world)
    yield from _of_tickets(world)
    retained = DEFINITION | {"options": {"retention_time": 99_999_999_999}}
    yield Refused("beyond a limit", "PUT", f"/event-types/{ET}", owner, retained, statuses=(422,))
    for path in ("/", "/console", "/console/login", "/console/api/event-types"):
        yield Refused("for another host", "GET", path, None, headers={"Host": "rebound.example"}, statuses=(421,))


def _of_tickets(world: World) -> Iterator[Refused]:
    """Tickets for another stream, used ones, and what is none."""
    stream, other = f"/event-types/{ET}/events", f"/event-types/{OWNED}/events"
    accepts = {"Accept": EVENT_STREAM}
    yield Refused("no ticket", "GET", f"{stream}?ticket=none", None, headers=accepts)
    yield Refused("ticket of another stream", "GET", f"{stream}?ticket={world.ticket(other)}", None, headers=accepts)
    used = f"{stream}?ticket={world.ticket(stream)}"
    world.broker.ask("GET", used, headers=accepts, pieces=0)
    yield Refused("used ticket", "GET", used, None, headers=accepts)


def _of_rights(world: World) -> Iterator[Refused]:
    """Requests for rights whose answers leave out the rights that a client does not have."""
    helpless, reader = f"{uid_of(frozenset())}/all", f"{uid_of(without('event type READ'))}/all"
    yield Refused("no such right", "GET", "/rights", helpless, hides="HISTORY")
    yield Refused("no such right", "GET", f"/rights?event_type={ET}", helpless, hides="WRITE")
    through = f"/rights?subscription_id={world.names['subscription_id']}"
    yield Refused("no such right", "GET", through, helpless, hides="ADMIN")
    for right in ("STREAM", "REDRIVE"):
        yield Refused("no such right", "GET", through, reader, hides=f'"{right}"')
    everything, named = uid_of(RIGHTS), f"/rights?event_type={ET}"
    publish, change = '"POST /event-types/{name}/events":"allowed"', '"PUT /event-types/{name}":"allowed"'
    scope = f"{everything}/not/nakadi.event_stream.write"
    yield Refused("no such scope", "GET", named, scope, hides=publish)
    everything = f"{everything}/all"
    blocked = {"blacklist": [f"{PRODUCER}_ET/{ET}"]}
    yield Refused("blacklisted", "GET", named, everything, hides=publish, state=blocked)
    yield Refused("read-only", "GET", named, everything, hides=change, state={"features": [READ_ONLY]})


def _of_streams(world: World) -> Iterator[Refused]:
    """Requests refused before any other error is reported, and streams that end after they have begun."""
    everything, begin = f"{uid_of(RIGHTS)}/all", f"cursors={quote(json.dumps([CURSOR]))}"
    stream, subscribed = f"/event-types/{ET}/events", f"/subscriptions/{world.names['subscription_id']}/events"
    blocked = {"blacklist": [f"{CONSUMER}_APP/{uid_of(RIGHTS)}"]}
    event_type = {"blacklist": [f"{CONSUMER}_ET/{ET}"]}
    several = {"partitions": [{"event_type": ET, "partition": "99"}]}
    yield Refused("blacklisted, no such partition", "POST", subscribed, everything, several, state=event_type)
    long = "batch_flush_timeout=1&stream_timeout=2&commit_timeout=1"
    for target in (f"{stream}?{long}&{begin}", f"{subscribed}?{long}"):
        yield Refused(
            "blacklisted meanwhile", "GET", target, everything, meanwhile=event_type, ends="Consumption is blocked"
        )
    yield Refused(
        "blacklisted, no such subscription", "GET", f"/subscriptions/{UNKNOWN_ID}/events", everything, state=blocked
    )
