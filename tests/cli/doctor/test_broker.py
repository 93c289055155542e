import pytest

from rioni.cli.doctor.broker import LogState
from rioni.wire.administration import Check, Health, Node, NodeWorker, Rebuild
from rioni.wire.audit import Denial
from tests.support.doctor_cases import Cases, ago, check_healthy, check_sick, error, healthy, sick, warning


# Long runs of tests begin well before this one is reached.
STILL_NOW = ago(hours=-2)


def rebuild(state, **changes):
    members = {
        "started_at": ago(hours=2),
        "updated_at": ago(minutes=1),
        "phase": "fold",
        "done": 1,
        "total": 2,
    } | changes
    return [Rebuild(id="1", state=state, **members), Rebuild(id="0", state="failed", **members)]


def denial(**changes):
    members = {"last_at": ago(minutes=5), "status": 401, "actor": "", "count": 60} | changes
    return Denial(
        first_at=ago(hours=2), method="GET", path="/x", address="192.0.2.7", user_agent="", flow_id="", **members
    )


def node(**changes):
    members = {"id": "1", "host": "a", "port": 8080, "version": "1", "configured_workers": 1} | changes
    return Node(workers=[NodeWorker(number=0, pid=1)], **members)


def health(status="ok", **checks):
    return Health(status=status, checks=checks)


HEALTHY = health(disk=Check(status="ok", detail="9 GiB free"))
CASES = {
    "liveness": Cases(
        [[HEALTHY]],
        [error("no progress", health("failed", threads=Check(status="failed", reason="makes no progress")))],
    ),
    "readiness": Cases(
        [[HEALTHY]],
        [
            error("disk: full", health("failed", disk=Check(status="failed", reason="full"))),
            warning("disk: nearly full", health(disk=Check(status="warning", warnings=["nearly full"]))),
            error("another: failed", health("failed", another=Check(status="failed"))),
            error("about to end", health("stopping")),
        ],
    ),
    "workers": Cases(
        [[[node()]], [[node(), node(id="2", host="b")]]],
        [
            error("1 of 2 workers of the node a:8080 work", [node(configured_workers=2)]),
            warning("different versions: 1, 2", [node(), node(id="2", version="2")]),
        ],
    ),
    "checkpoints": Cases(
        [[LogState(7, size=7)], [LogState(7, size=9)]],
        [
            error("503", LogState(7, checkpoint_error="503 Service Unavailable")),
            error("covers 5 entries", LogState(7, size=5)),
        ],
    ),
    "witnesses": Cases(
        [
            [LogState(7, size=7)],
            [LogState(7, size=7, cosigned_size=5, cosigned_at=ago(hours=1))],
            [LogState(7, size=7, cosigned_size=7, cosigned_at=ago(days=30))],
        ],
        [warning("2 entries came since", LogState(7, size=7, cosigned_size=5, cosigned_at=ago(days=3)))],
    ),
    "rebuild": Cases(
        [[[]], [rebuild("done")], [rebuild("running", updated_at=STILL_NOW)]],
        [
            warning("interrupted", rebuild("interrupted")),
            warning("failed in the phase fold): no space", rebuild("failed", detail="no space")),
            warning("no progress", rebuild("running", updated_at=ago(hours=1))),
        ],
    ),
    "refused-requests": Cases(
        [[[]], [[denial()]], [[denial(last_at=ago(hours=3), count=9_000)]]],
        [
            warning("without a valid token at 192.0.2.7 was refused 120 times with 401", [denial(), denial()]),
            warning("jane", [denial(actor="jane", status=403, count=200)]),
        ],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_where_the_broker_is_healthy(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_the_broker_says_of_itself_is_found(name, case):
    check_sick(name, case)
