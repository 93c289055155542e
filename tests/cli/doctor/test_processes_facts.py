import os
import socket
from dataclasses import replace

import pytest

from rioni.cli.doctor import machine, processes
from rioni.cli.doctor.diagnosis import Deadline, Host, NotLookedAt, Scope, Site
from rioni.client import Client
from rioni.config.settings import Config


@pytest.fixture
def site(tmp_path):
    with Client("http://127.0.0.1:1", attempts=1) as client:
        yield Site("http://127.0.0.1:1", client, Scope(), Deadline(60), host=Host(tmp_path))


def on(site, **host):
    return replace(site, host=replace(site.host, **host))


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A directory used instead of /proc, with the process 7 and its child 8."""
    folder = tmp_path / "proc"
    (folder / "7" / "task" / "7").mkdir(parents=True)
    (folder / "7" / "task" / "7" / "children").write_text("8 ")
    for pid in ("7", "8"):
        (folder / pid / "fd").mkdir(parents=True)
        (folder / pid / "fd" / "0").symlink_to("socket:[4711]" if pid == "8" else "/dev/null")
        (folder / pid / "status").write_text("Name:\tpython\nVmRSS:\t    2048 kB\nVmSwap:\t       4 kB\n")
        (folder / pid / "limits").write_text(
            "Limit    Soft Limit   Hard Limit   Units\nMax open files   1024   4096   files\n"
        )
        (folder / pid / "comm").write_text("nginx\n")
    (folder / "7" / "cgroup").write_text("0::/absent.slice\n")
    (folder / "net").mkdir()
    address = "0100007F:1F90"  # 127.0.0.1:8080
    (folder / "net" / "tcp").write_text(
        "sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        f" 0: {address} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4711 1\n"
        f" 1: {address} 00000000:0000 01 00000000:00000000 00:00000000 00000000  0  0 4712 1\n"
    )
    (folder / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n")
    for module in (machine, processes):
        monkeypatch.setattr(module, "PROC", folder)
    return folder


def test_processes_are_the_broker_and_its_workers(site, proc):
    found = processes.processes.gather(on(site, pid=7))
    assert [each.pid for each in found.items] == [7, 8]
    assert found.items[0] == processes.Process(7, 1, 1024, 2048 * 1024, 4096)


def test_a_suspended_process_is_known(site, proc):
    (proc / "8" / "status").write_text("Name:\tpython\nState:\tT (stopped)\n")
    assert [each.suspended for each in processes.processes.gather(on(site, pid=7)).items] == [False, True]


def test_what_may_not_be_seen_of_a_process_is_unknown(site, proc):
    for name in ("status", "limits"):
        (proc / "7" / name).unlink()
    (proc / "7" / "fd" / "0").unlink()
    (proc / "7" / "fd").rmdir()
    assert processes.processes.gather(on(site, pid=7)).items[0] == processes.Process(7)


def test_a_broker_that_does_not_run_has_no_processes(site):
    assert processes.processes.gather(site).items == []


def test_the_process_that_uses_the_port_is_found(site, proc):
    used = on(site, config=Config(port=8080))
    assert processes.port.gather(used) == processes.Port(8080, listening=True, pid=8, command="nginx")
    (proc / "8" / "fd" / "0").unlink()
    assert processes.port.gather(used) == processes.Port(8080, listening=True)
    assert processes.port.gather(on(used, pid=7)) == processes.Port(8080, listening=True, broker=True)
    assert processes.port.gather(on(used, config=Config(port=8081))) == processes.Port(8081, listening=False)


def test_what_a_process_closes_meanwhile_does_not_hide_it(site, proc):
    for number in range(1, 20):
        (proc / "8" / "fd" / str(number)).touch()  # no link: reading it fails, as with one that is gone
    assert processes.port.gather(on(site, config=Config(port=8080))).pid == 8


def test_a_real_port_that_is_used_is_found(site):
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = processes.port.gather(on(site, config=Config(port=server.getsockname()[1])))
        assert (found.listening, found.pid) == (True, os.getpid())


def test_a_port_that_the_system_chooses_is_not_known(site):
    with pytest.raises(NotLookedAt):
        processes.port.gather(on(site, config=Config(port=0)))


def test_memory_is_that_of_the_machine_and_of_the_control_group(site, proc, tmp_path, monkeypatch):
    expected = machine.Memory(1000 * 1024, 500 * 1024, 10 * 1024, 4 * 1024)
    assert machine.memory.gather(site) == expected
    assert machine.memory.gather(on(site, pid=7)) == expected
    group = tmp_path / "absent.slice"
    group.mkdir()
    for name, text in {"max": "4096\n", "current": "1024\n", "events": "low 0\noom_kill 2\n"}.items():
        (group / f"memory.{name}").write_text(text)
    monkeypatch.setattr(machine, "CONTROL_GROUPS", tmp_path)
    found = machine.memory.gather(on(site, pid=7))
    assert (found.limit_bytes, found.used_bytes, found.killed) == (4096, 1024, 2)


def test_the_kernel_tells_whether_the_clock_is_synchronised(site):
    assert machine.clock_sync.gather(site).synchronised in {True, False}


@pytest.mark.parametrize("source", [processes.processes, processes.port, machine.memory, machine.clock_sync])
def test_only_the_host_of_the_broker_is_looked_at(site, source):
    with pytest.raises(NotLookedAt, match="--data"):
        source.gather(replace(site, host=None))
