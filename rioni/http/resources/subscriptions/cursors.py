"""`/subscriptions/{id}/cursors`: committed cursors of a subscription (reference subscriptions#commit)."""

from http import HTTPStatus
from uuid import uuid4

import falcon
import orjson

from rioni.commands.subscriptions.cursor_commits import CommitCursors
from rioni.commands.subscriptions.initial_cursors import ResetCursors
from rioni.domain.errors import Malformed
from rioni.domain.ports.notifier import LOG_KEY
from rioni.domain.subscriptions.activity import COMMIT
from rioni.http.bodies import body_schemas, parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.request_parsing import context_of, parsed
from rioni.http.resources.resource import Resource


STREAM_ID_HEADER = "X-Nakadi-StreamId"


class SubscriptionCursorsResource(Resource):
    """The committed cursors of one subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """List the committed cursors; none until the subscription was first streamed."""
        dependencies = self._dependencies
        dependencies.registry.refresh()
        subscription = dependencies.registry.subscription(subscription_id)
        dependencies.access.blacklist(
            "CONSUMER", subject_of(req), subscription.event_types, "Application or subscription is blocked"
        )
        items = [
            {
                "partition": partition.partition,
                "offset": offset,
                "event_type": partition.event_type,
                "cursor_token": str(uuid4()),
            }
            for partition, offset in dependencies.coordinator.committed(subscription_id).items()
        ]
        resp.data = orjson.dumps({"items": items})

    def on_patch(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Reset cursors, once all streams have ended."""
        cursors = parsed(parsing.reset_cursors, read_json(req), self._dependencies)
        command = ResetCursors(subscription_id=subscription_id, cursors=cursors)
        self._dependencies.cursor_initializer.reset(command, context_of(req, self._dependencies))
        self._dependencies.signals.notify(LOG_KEY)
        resp.status = HTTPStatus.NO_CONTENT.value

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Commit cursors: 204 if all of them advanced their partitions, otherwise 200 with the result of each."""
        stream_id = req.get_header(STREAM_ID_HEADER)
        if stream_id is None:
            raise Malformed(f"The header {STREAM_ID_HEADER} is missing")
        cursors = parsed(parsing.committed_cursors, read_json(req), self._dependencies)
        command = CommitCursors(subscription_id=subscription_id, stream_id=stream_id, cursors=cursors)
        subject = subject_of(req)
        advanced = self._dependencies.committer.commit(command, subject)
        self._dependencies.metrics.committed_cursors.inc(sum(advanced))
        self._dependencies.activity.record(COMMIT, subscription_id, subject.key, sum(advanced))
        if all(advanced):
            resp.status = HTTPStatus.NO_CONTENT.value
            return
        items = [
            {
                "cursor": {name: cursor[name] for name in body_schemas.COMMITTED_MEMBERS},
                "result": "committed" if done else "outdated",
            }
            for cursor, done in zip(cursors, advanced, strict=True)
        ]
        resp.data = orjson.dumps({"items": items})
