import json
from random import Random
from types import SimpleNamespace

import falcon.testing
import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.publisher import Publisher
from rioni.commands.timeline_appender import TimelineAppender
from rioni.config.settings import Config
from rioni.domain.ports.host import direct
from rioni.http.answer_budget import AnswerBudget
from rioni.http.bodies.reading import BodyBudget
from rioni.http.metrics.collectors import Metrics
from rioni.http.middleware.requests import RequestMiddleware
from rioni.http.quotas import Quotas, SharedBuckets
from rioni.http.resources.events import EventsResource
from tests.support.broker import running_broker
from tests.support.builders import event_type_spec
from tests.support.memory import DiesAfterAppend, SingleStore


METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}


@pytest.fixture
def client(tmp_path):
    """A client that publishes to a store that dies between writing and answering."""
    with running_broker(tmp_path / "data") as broker:
        broker.do(CreateEventType(spec=event_type_spec()))
        stores = SingleStore(DiesAfterAppend(broker.store))
        timeline = TimelineAppender(broker.registry, stores, broker.signals, broker.clock, wait_max_s=0)
        publisher = Publisher(broker.registry, broker.access, timeline, broker.clock, Random(1), broker.limits, direct)
        metrics = Metrics()
        app = falcon.App(middleware=[RequestMiddleware(metrics, BodyBudget(), AnswerBudget())])
        dependencies = SimpleNamespace(
            config=Config(), publisher=publisher, metrics=metrics, quotas=Quotas(Config(), SharedBuckets(4))
        )
        app.add_route("/event-types/{name}/events", EventsResource(dependencies))
        yield falcon.testing.TestClient(app)


def test_an_unknown_outcome_is_answered_with_a_result_for_each_event(client):
    """Reference publishing#partial-results."""
    events = [{"order_id": str(number), "metadata": METADATA} for number in range(2)]
    response = client.simulate_post("/event-types/order.created/events", body=json.dumps(events))
    assert response.status_code == 207
    assert response.headers["content-type"] == "application/json"
    assert (
        response.json
        == [
            {
                "publishing_status": "failed",
                "detail": "timed out",
                "step": "publishing",
                "eid": METADATA["eid"],
                "partition": "0",
            }
        ]
        * 2
    )
