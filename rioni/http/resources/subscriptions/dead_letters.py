"""`/subscriptions/{id}/dead-letters`: events that consumers never commit, listed and published again."""

import falcon
import msgspec

from rioni.commands.subscriptions.dead_letters import KeptDeadLetter
from rioni.domain.errors import Malformed
from rioni.domain.ports.notifier import LOG_KEY
from rioni.domain.subscriptions.dead_letter_policy import LIST_DEFAULT, LIST_MAX, DeadLetterFilter
from rioni.domain.timestamps import rfc3339
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.request_parsing import context_of, integer
from rioni.http.resources.resource import Resource


class DeadLettersResource(Resource):
    """The dead letters of one subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """List dead letters, oldest first."""
        limit = integer(req, "limit", LIST_DEFAULT)
        if not 1 <= limit <= LIST_MAX:
            raise Malformed(f"limit must be from 1 to {LIST_MAX}")
        wanted = parsing.dead_letter_filter({name: req.get_param(name) for name in DeadLetterFilter.__struct_fields__})
        marked = req.get_param_as_bool("show_redriven", default=False)
        page = self._dependencies.dead_letters.page(subscription_id, wanted, limit, subject_of(req), marked=marked)
        resp.data = msgspec.json.encode({"items": [_item(kept) for kept in page]})


class RedriveResource(Resource):
    """Publishes dead letters again."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Publish them, and answer their number."""
        command = parsing.redrive(subscription_id, read_json(req))
        context, charge = context_of(req, self._dependencies), self._dependencies.quotas.publishing(req)
        redriven = self._dependencies.dead_letters.redrive(command, context, charge)
        self._dependencies.signals.notify(LOG_KEY)
        self._dependencies.metrics.redriven_events.inc(redriven.redriven)
        resp.data = msgspec.json.encode(redriven)


class RedrivePreviewResource(Resource):
    """Says what a redrive would do."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Answer the numbers; a path of its own, since an older broker would ignore a member and publish."""
        command = parsing.redrive(subscription_id, read_json(req))
        resp.data = msgspec.json.encode(self._dependencies.dead_letters.preview(command, subject_of(req)))


def _item(kept: KeptDeadLetter) -> dict[str, object]:
    letter = kept.letter
    return {
        "event_type": letter.event_type,
        "partition": letter.partition,
        "offset": letter.offset,
        "kept_at": rfc3339(kept.kept_at_ms),
        "error": letter.error,
        "event": letter.event,
        **({} if kept.redriven is None else {"redriven": kept.redriven}),
    }
