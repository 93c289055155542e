import os
from dataclasses import replace
from pathlib import Path

import pytest

from rioni.cli.doctor import disk
from rioni.cli.doctor.diagnosis import Deadline, Host, NotLookedAt, Scope, Site
from rioni.client import Client
from rioni.config.settings import Config
from tests.support.certificates import authority


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:40 / /srv rw - nfs4 server:/srv rw
25 24 8:2 / /srv/with\\040space ro,nosuid - xfs /dev/sdb1 rw
26 24 0:41 / /srv/upper rw - ext4 /dev/sdc1 rw
27 26 0:42 / /srv/upper rw - tmpfs tmpfs rw
no mount
"""


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "format").write_text(disk.FORMAT)
    return folder


@pytest.fixture
def site(data):
    with Client("http://127.0.0.1:1", attempts=1) as client:
        yield Site("http://127.0.0.1:1", client, Scope(), Deadline(60), host=Host(data, config=Config()))


def test_a_data_directory_is_described(site, data):
    (data / "events.db-wal").write_bytes(bytes(5))
    (data / "events.db-unknown").write_bytes(b"")
    found = disk.data_directory.gather(site)
    assert found == disk.DataDirectoryFacts(
        str(data), owner=os.getuid(), unknown=["events.db-unknown"], wal_bytes={"events.db-wal": 5}
    )
    (data / "restore.json").write_text("{}")
    (data / "format").unlink()
    found = disk.data_directory.gather(site)
    assert (found.restoring, found.layout) == (True, "")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_files_of_another_owner_are_found(site, data):
    os.chown(data / "format", 12_345, -1)
    assert disk.data_directory.gather(site).foreign == ["format"]


def test_a_missing_data_directory_is_described(site, tmp_path):
    missing = replace(site, host=Host(tmp_path / "absent"))
    assert disk.data_directory.gather(missing).error == "No such file or directory"


def test_the_disk_has_space_and_inodes(site):
    found = disk.disk.gather(site)
    assert 0 < found.free_bytes <= found.total_bytes


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/opt/x", "ext4"),
        ("/srv/rioni", "nfs4"),
        ("/srv/with space/rioni", "xfs"),
        ("/srv/upper/x", "tmpfs"),
        ("/srv/upperx", "nfs4"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path, kind):
    assert disk.mount_of(Path(path), MOUNTS).kind == kind


def test_options_of_a_mount_are_known():
    assert disk.mount_of(Path("/srv/with space"), MOUNTS).options == ["ro", "nosuid"]
    with pytest.raises(NotLookedAt):
        disk.mount_of(Path("/x"), "")


def test_the_file_system_of_this_machine_is_known(site):
    assert disk.file_system.gather(site).kind


def test_fsync_is_measured_only_if_it_was_asked_for(site, data):
    with pytest.raises(NotLookedAt, match="--fsync"):
        disk.fsyncs.gather(site)
    before = sorted(data.iterdir())
    found = disk.fsyncs.gather(replace(site, scope=Scope(fsync=True)))
    assert 1 <= len(found) <= disk.FSYNCS
    assert sorted(data.iterdir()) == before


def test_the_file_of_a_certificate_is_read(site, data):
    with pytest.raises(NotLookedAt):
        disk.certificate_file.gather(site)
    certificate, key = authority().issue(data)
    with_tls = replace(site, host=Host(data, config=Config(tls_certificate=certificate, tls_key=key)))
    assert disk.certificate_file.gather(with_tls).names == ["localhost", "broker", "127.0.0.1"]
    certificate.write_text("no certificate")
    with pytest.raises(NotLookedAt, match="no certificate in PEM"):
        disk.certificate_file.gather(with_tls)


def test_the_end_of_a_log_begins_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "LOG_BYTES_MAX", 10)
    path = tmp_path / "rioni.log"
    path.write_text("one two three\nfour\nfive\n")
    assert disk.end_of(path).text == "four\nfive\n"[-5:]
    path.write_text("one\n")
    assert disk.end_of(path).text == "one\n"
    assert disk.end_of(tmp_path / "absent").error == "No such file or directory"


def test_logs_are_read_only_if_they_were_named(site, tmp_path):
    with pytest.raises(NotLookedAt, match="--log"):
        disk.logs.gather(site)
    assert disk.last_lines.gather(site) == []
    path = tmp_path / "rioni.log"
    path.write_text("one\n")
    named = replace(site, scope=Scope(logs=[path]))
    assert disk.logs.gather(named) == disk.last_lines.gather(named) == [disk.LogFile(str(path), "one\n")]
