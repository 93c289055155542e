import pytest

from rioni.cli.doctor.connection import Reach
from rioni.cli.doctor.disk import LogFile
from rioni.cli.doctor.machine import ClockSync, Memory
from rioni.cli.doctor.processes import Port, Process, Processes
from tests.support.doctor_cases import Cases, check_healthy, check_sick, error, healthy, sick, warning


GIB, MIB = 2**30, 2**20
RUNNING = Processes("data", [Process(1, 30, 65_536, GIB, 0), Process(2, 900, 65_536, GIB, 0), Process(3)])
STOPPED = Processes("data", [])
REFUSED = Reach("http://x", error="http://x does not answer: refused")
LOG = LogFile("rioni.log", "one\ntwo\nthree\nError: the port 8080 is in use\n")
CASES = {
    "process": Cases(
        [[RUNNING, REFUSED, []]],
        [
            error("No broker runs on data.", STOPPED, REFUSED, []),
            error(
                "process 2 of the broker is suspended",
                Processes("data", [Process(1), Process(2, suspended=True)]),
                REFUSED,
                [],
            ),
            warning("http://x answers, but no process", STOPPED, Reach("http://x"), []),
            error("rioni.log ends with: two | three | Error: the port 8080 is in use", STOPPED, REFUSED, [LOG]),
        ],
    ),
    "port-in-use": Cases(
        [
            [Port(8080, listening=True, broker=True), REFUSED],
            [Port(8080, listening=False), REFUSED],
            [Port(8080, listening=True, pid=7, command="docker-proxy"), Reach("http://x")],
        ],
        [
            error("nothing listens", Port(8080, listening=False, broker=True), REFUSED),
            error(
                "the process 7 (nginx) uses its port 8080", Port(8080, listening=True, pid=7, command="nginx"), REFUSED
            ),
            error("another process uses", Port(8080, listening=True), REFUSED),
        ],
    ),
    "open-files": Cases(
        [[RUNNING], [STOPPED]],
        [
            warning("1,024 files", Processes("data", [Process(1, 30, 1_024)])),
            error("60,000 of 65,536", Processes("data", [Process(1, 60_000, 65_536)])),
        ],
    ),
    "free-memory": Cases(
        [[Memory(16 * GIB, 8 * GIB)], [Memory(16 * GIB, 8 * GIB, limit_bytes=2 * GIB, used_bytes=GIB)]],
        [
            warning("0.50 of 16.00 GiB", Memory(16 * GIB, GIB // 2)),
            warning("1.95 of 2.00 GiB", Memory(16 * GIB, 8 * GIB, limit_bytes=2 * GIB, used_bytes=2_000 * MIB)),
            warning("3 processes", Memory(16 * GIB, 8 * GIB, killed=3)),
        ],
    ),
    "swap": Cases(
        [[RUNNING]], [warning("400 MiB", Processes("data", [Process(n, swapped_bytes=200 * MIB) for n in (1, 2)]))]
    ),
    "time-server": Cases([[ClockSync(synchronised=True)]], [warning("no time server", ClockSync(synchronised=False))]),
    "unreachable-here": Cases(
        [[Reach("http://x"), RUNNING], [Reach("http://x", error="refused"), STOPPED]],
        [error("but http://x does not answer", Reach("http://x", error="refused"), RUNNING)],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_on_a_healthy_host(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_is_wrong_with_a_host_is_found(name, case):
    check_sick(name, case)
