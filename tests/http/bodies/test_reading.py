from types import SimpleNamespace

import pytest

from rioni.domain.access.authorization import Subject
from rioni.domain.errors import Overloaded, TooManyStreams
from rioni.http.bodies.reading import LARGE_BYTES, BodyBudget, hold, let_go
from rioni.http.caller import ANONYMOUS, Caller


MEGABYTE = 1_000_000


def request(budget, *, address="192.0.2.1", subject=None, realm="services"):
    caller = ANONYMOUS if subject is None else Caller(Subject(name=subject, realm=realm))
    return SimpleNamespace(context=SimpleNamespace(bodies=budget, caller=caller), remote_addr=address)


def test_a_client_can_not_use_more_than_its_share_and_others_continue():
    """Reference common#bodies-in-flight."""
    budget = BodyBudget(10 * MEGABYTE, 4 * MEGABYTE)
    requests = [request(budget) for _ in range(4)]
    for each in requests:
        hold(each, MEGABYTE)
    with pytest.raises(TooManyStreams, match="already holds 4000000 bytes of request bodies of this client") as caught:
        hold(request(budget), 1)
    assert caught.value.retry_after_s
    hold(request(budget, address="192.0.2.2"), MEGABYTE)
    let_go(requests[0])
    hold(request(budget), MEGABYTE)


def test_all_clients_together_can_not_exceed_the_budget_of_the_worker():
    """Reference common#bodies-in-flight."""
    budget = BodyBudget(10 * MEGABYTE, 4 * MEGABYTE)
    for number in range(10):
        hold(request(budget, address=f"192.0.2.{number}"), MEGABYTE)
    with pytest.raises(Overloaded, match="already holds 10000000 bytes") as caught:
        hold(request(budget, address="192.0.2.99"), 1)
    assert caught.value.retry_after_s


def test_a_client_with_a_token_is_the_same_from_every_address():
    """Reference common#bodies-in-flight."""
    budget = BodyBudget(10 * MEGABYTE, 4 * MEGABYTE)
    hold(request(budget, subject="shop", address="192.0.2.1"), 4 * MEGABYTE)
    hold(request(budget, subject="other", address="192.0.2.1"), 4 * MEGABYTE)
    with pytest.raises(TooManyStreams):
        hold(request(budget, subject="shop", address="192.0.2.2"), 1)


def test_clients_behind_one_proxy_have_budgets_of_their_own_with_and_without_realms():
    """Reference common#bodies-in-flight."""
    budget = BodyBudget(20 * MEGABYTE, 4 * MEGABYTE)
    for realm in ("", "services", "employees"):
        hold(request(budget, subject="shop", realm=realm), 4 * MEGABYTE)
    hold(request(budget, subject="other", realm=""), MEGABYTE)
    hold(request(budget), MEGABYTE)
    hold(request(budget, subject="192.0.2.1", realm=""), 4 * MEGABYTE)


@pytest.mark.parametrize("greedy", [1, 2, 3, 7, 12])
def test_clients_that_never_finish_leave_a_share_for_the_next_one(greedy):
    """Reference common#bodies-in-flight."""
    budget, step = BodyBudget(10 * MEGABYTE, 10 * MEGABYTE), 10_000
    hungry = set(range(greedy))
    while hungry:
        for client in [*hungry]:
            try:
                hold(request(budget, subject=f"{client}", realm=""), step)
            except TooManyStreams:
                hungry.remove(client)
    free = 10 * MEGABYTE - budget.held
    assert free >= (10 * MEGABYTE - greedy**2 * step) // (greedy + 1)
    for _ in range(free // 2 // step):
        hold(request(budget, subject="next"), step)


def test_released_memory_is_free_again_and_counted_once():
    budget = BodyBudget(10 * MEGABYTE, 4 * MEGABYTE)
    for _ in range(100):
        one = request(budget)
        hold(one, 2 * MEGABYTE)
        hold(one, 2 * MEGABYTE)
        assert budget.held == 4 * MEGABYTE
        let_go(one)
        let_go(one)
        assert budget.held == 0


def test_freed_large_bodies_are_detected():
    budget = BodyBudget(10 * MEGABYTE, 4 * MEGABYTE)
    for size, large in ((LARGE_BYTES - 1, False), (LARGE_BYTES, True)):
        one = request(budget)
        hold(one, size)
        assert not budget.has_released_large()
        let_go(one)
        assert budget.has_released_large() is large
        assert not budget.has_released_large()
