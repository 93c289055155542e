import time
from threading import Thread

import pytest

from rioni.storage.zookeeper import session as module
from tests.support.waiting import WAIT_S


pytestmark = pytest.mark.zookeeper


def test_a_connection_is_kept_while_the_server_still_answers_earlier_requests(start, monkeypatch):
    monkeypatch.setattr(module, "STUCK_SHARE", 1 / 10)
    session, left = start().session, []
    answers, sign_of_life = [session.handler.async_result() for _ in range(150)], session.handler.async_result()
    monkeypatch.setattr(session.handler, "disconnect", lambda: left.append(True))
    monkeypatch.setattr(session._client, "exists_async", lambda _path: sign_of_life)

    def answer() -> None:
        for number, each in enumerate(answers):
            time.sleep(0.02)
            each.set(number)
        sign_of_life.set(None)

    answering, got = Thread(target=answer), []
    requests = [lambda _client, each=each: each for each in answers]
    asking = Thread(target=lambda: got.extend(session.request(*requests)))
    for thread in (answering, asking):
        thread.start()
    session._heartbeat()
    for thread in (answering, asking):
        thread.join(WAIT_S)
    assert not left
    assert got == list(range(150))
