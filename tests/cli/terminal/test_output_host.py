"""The output of `--json` is pinned, for commands on the host of a broker."""

import json
import re
from pathlib import Path

from tests.support.snapshots import differences


COMMANDS = {
    "host-verify": "verify --data {data}",
    "host-backup": "backup --data {data} --to backup",
    "host-restore": "restore --from backup --data {data}",
    "host-accept-loss": "accept-loss --data {data} --reason test",
    "host-projections-list": "projections list --data {data}",
    "host-audit": "audit --data {data}",
    "host-audit-log": "audit log storage:default --data {data}",
    "host-audit-show": "audit show storage:default --data {data}",
    "host-audit-diff": "audit diff --from 0 --data {data}",
}
VARYING = {
    r'("(?:bytes|written_bytes|seconds|[\w.]+\.db|format|fold)": ?)[\d.]+': r'\1"N"',
    r"before-restore-[0-9TZ.]+": "before-restore",
}


def test_what_json_prints_is_pinned(run, data, tmp_path):
    wrong = []
    for name, command in COMMANDS.items():
        code, out, err = run(*command.format(data=data).split(), "--json")
        assert code == 0, err
        assert all(json.loads(line) is not None for line in out.splitlines())
        for pattern, word in VARYING.items():
            out = re.sub(pattern, word, out)
        wrong += differences(name, out, folder=str(tmp_path))
    assert not wrong


def test_remarks_for_people_do_not_mix_with_json(run, data):
    assert run("backup", "--data", data, "--to", "backup")[0] == 0
    code, out, err = run("restore", "--from", "backup", "--data", data, "--json")
    assert code == 0
    assert len(out.splitlines()) == 1
    assert json.loads(out)["kept_in"]
    assert "The files from before are in" in err
    assert Path(data).exists()


def test_settings_are_lines_with_their_sources(run):
    code, out, _ = run("config", "show", "--json")
    assert code == 0
    assert '{"setting":"port","value":"8080","source":"default"}' in out.splitlines()
