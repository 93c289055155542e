import pytest

from rioni.cli.doctor.connection import Certificate
from rioni.cli.doctor.disk import DataDirectoryFacts, Disk, FileSystem, LogFile
from rioni.config.settings import Config
from tests.support.doctor_cases import Cases, ago, check_healthy, check_sick, error, healthy, sick, warning


GIB, MIB = 2**30, 2**20
LOG = LogFile("rioni.log", "one\ntwo\nthree\nError: the port 8080 is in use\n")


def certificate(days):
    return Certificate("", "CN=broker", [], ago(days=30), ago(days=-days))


CASES = {
    "data": Cases(
        [[DataDirectoryFacts("data")]],
        [
            error("Permission denied", DataDirectoryFacts("data", error="Permission denied")),
            error("was interrupted", DataDirectoryFacts("data", restoring=True)),
            error("is not a data directory", DataDirectoryFacts("data", layout="")),
            error("has the format 'format 9'", DataDirectoryFacts("data", layout="format 9\n")),
            warning("events.db-unknown", DataDirectoryFacts("data", unknown=["events.db-unknown"])),
            error(
                "registry.db-wal in data belong to another user",
                DataDirectoryFacts("data", foreign=["registry.db-wal"]),
            ),
            warning("Other users may look into data (0755)", DataDirectoryFacts("data", mode=0o755)),
        ],
    ),
    "registry": Cases(
        [
            [DataDirectoryFacts("data", stores=["events.db", "registry.db"]), Config()],
            [DataDirectoryFacts("data"), Config()],
            [DataDirectoryFacts("data", stores=["activity.db"]), Config(database="postgresql://db/rioni")],
        ],
        [error("no registry.db", DataDirectoryFacts("data", stores=["events.db"]), Config())],
    ),
    "write-ahead-logs": Cases(
        [[DataDirectoryFacts("data", wal_bytes={"events.db-wal": 5 * MIB})]],
        [warning("events.db-wal has 300 MiB", DataDirectoryFacts("data", wal_bytes={"events.db-wal": 300 * MIB}))],
    ),
    "disk-space": Cases(
        [[Disk(50 * GIB, 100 * GIB, 1, 1)]],
        [
            error("is full", Disk(10 * MIB, 100 * GIB, 1, 1)),
            warning("nearly full", Disk(5 * GIB, 100 * GIB, 1, 1)),
            warning("nearly full", Disk(GIB // 2, 2 * GIB, 1, 1)),
        ],
    ),
    "inodes": Cases(
        [[Disk(1, 1, 50_000, 100_000)], [Disk(1, 1, 0, 0)]],
        [error("0 of 100,000", Disk(1, 1, 0, 100_000)), warning("2,000 of 100,000", Disk(1, 1, 2_000, 100_000))],
    ),
    "file-system-kind": Cases(
        [[FileSystem("ext4", "/srv", ["rw", "relatime"])]],
        [
            warning("a network file system", FileSystem("nfs4", "/srv")),
            warning("in memory", FileSystem("tmpfs", "/run")),
            warning("layer of a container", FileSystem("overlay", "/")),
            warning("read-only", FileSystem("ext4", "/srv", ["ro"])),
        ],
    ),
    "broker-certificate-file": Cases(
        [[certificate(90)]], [error("has expired", certificate(-1)), warning("in 1 days", certificate(2))]
    ),
    "disk-speed": Cases(
        [[([1.0, 2.0, 90.0])], [([])]],
        [warning("takes 50 ms (median of 3, at most 90", ([90.0, 50.0, 2.0]))],
    ),
    "log-errors": Cases(
        [[[LogFile("a", "2026-01-01 [info     ] no error [rioni]\n")]]],
        [
            warning("1 lines", [LogFile("a", "2026-01-01 [error    ] a thread hangs [rioni]\nx\n")]),
            warning("1 lines", [LogFile("a", '{"level":"critical","message":"x"}\n')]),
            warning("the port", [LOG]),
            warning("can't be read", [LogFile("a", error="No such file or directory")]),
        ],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_on_a_healthy_disk(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_is_wrong_with_a_disk_is_found(name, case):
    check_sick(name, case)
