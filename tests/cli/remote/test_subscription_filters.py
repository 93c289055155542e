"""`rioni subscriptions try-filter`."""


def test_a_filter_is_tried_on_events(rioni, snapshot):
    events = "".join(f'{{"number": {number}}}\n' for number in range(25))
    code, out, _ = rioni(
        "subscriptions", "try-filter", "event.number > 22 && has(event.number)", "--json", stdin=events
    )
    assert code == 0
    assert out.count('"matches":true') == 2
    snapshot("subscriptions-try-filter", out.splitlines(keepends=True)[-1])


def test_no_match_is_a_finding_and_a_bad_filter_an_error(rioni):
    assert rioni("subscriptions", "try-filter", "event.a > 1", stdin='{"a": 1}\n')[0] == 1
    code, _, err = rioni("subscriptions", "try-filter", "event.a >", stdin='{"a": 1}\n')
    assert code == 2
    assert "The filter can't be used" in err
    assert rioni("subscriptions", "try-filter", "event.a > 1", stdin="{")[0] == 2
