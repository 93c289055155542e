from rioni.cli.doctor import subscriptions
from tests.support.scripted_server import Answer


def test_of_many_subscriptions_some_are_chosen(site, scripted, monkeypatch):
    monkeypatch.setattr(subscriptions, "LISTED_MAX", 2)
    monkeypatch.setattr(subscriptions, "SUBSCRIPTIONS_MAX", 1)
    items = [{"id": str(n), "owning_application": "a", "event_types": ["a"]} for n in range(3)]
    stats = Answer(200, {"items": []})
    scripted.script_paths(
        {"/subscriptions": [Answer(200, {"items": items})]} | {f"/subscriptions/{n}/stats": [stats] for n in range(3)}
    )
    found = subscriptions.subscriptions.gather(site)
    assert len(found.items) == 1
    assert found.partial == "looked at 1 of 2 subscriptions or more, others each time"


def test_what_waits_for_subscriptions_that_were_never_streamed_is_asked_for(site, scripted):
    def stats(**known):
        partition = {"partition": "0", "state": "unassigned", "stream_id": ""} | known
        return Answer(200, {"items": [{"event_type": "a", "partitions": [partition]}]})

    items = [{"id": name, "owning_application": "a", "event_types": ["a"]} for name in ("new", "old")]
    scripted.script_paths(
        {
            "/subscriptions": [Answer(200, {"items": items})],
            "/subscriptions/new/stats": [stats(), stats(unconsumed_events=5, consumer_lag_seconds=7)],
            "/subscriptions/old/stats": [stats(unconsumed_events=0)],
        }
    )
    new, old = subscriptions.subscriptions.gather(site).items
    assert (new.never_streamed, new.lags) == (True, [subscriptions.SubscriptionLag("a", "0", False, 5, None, 7)])
    assert (old.never_streamed, old.lags) == (False, [subscriptions.SubscriptionLag("a", "0", False, 0)])
