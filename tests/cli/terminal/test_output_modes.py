"""Files that commands write at given places: the private ones are private whatever the umask is.

Source: reference authorization#commands-on-the-host.
"""

import stat
from pathlib import Path

import pytest

from rioni.cli.app import app
from rioni.server.log_tree import build_checkpoint_signer
from tests.files.test_plain_private import umask
from tests.installation.test_stores import running
from tests.support.command_tree import leaves


PRIVATE = {
    "backup --to": "--data data",
    "copy --state": "{name} {target}",
    "doctor --bundle": "--only version",
    "tokens create --file": "--uid jane",
    "witness --state": "",
}
SHARED = {
    "audit --output": "--data data",
    "audit checkpoint --output": "--data data",
    "audit export --to": "--data data",
    "copy --rejected": "{name} {target} --continue",
    "events delete --rejected": "{name} --file events.jsonl --continue --yes",
    "log tile --output": "0 000.p/1",
    "man --to": "",
    "publish --rejected": "{name} events.jsonl --continue",
    "rebuild --output": "--data data --only none",
    "types --output": "{name}",
}
"""Arguments by command and option; the option names what is made. `rebuild` opens the file before it is refused."""
READ = {
    "audit consistency file",
    "audit export --scratch",
    "doctor --log",
    "doctor --constraints",
    "event-types create --schema",
    "log cosign file",
    "migrate --to",
    "rebuild --scratch",
    "restore --from",
    "schemas add file",
    "schemas check file",
    "schemas find file",
    "serve --tls-certificate",
    "serve --tls-key",
    "verify --checkpoint",
    "witness --key",
}
"""Options for files that commands only read, and for Spark's folders, which are empty in the end."""
OF_ALL = ("--config", "--data", "--ca-certificate")


@pytest.fixture
def names(broker, name):
    """An event type with an event, and one that refuses it."""
    target = f"{name}.target"
    narrow = '{"type":"object","required":["none"]}'
    with broker.client() as api:
        for each, schema in ((name, "{}"), (target, narrow)):
            body = {"name": each, "owning_application": "x", "category": "undefined"}
            api.post(
                "/event-types", json=body | {"schema": {"type": "json_schema", "schema": schema}}
            ).raise_for_status()
        api.post(f"/event-types/{name}/events", json=[{"order_id": 1}]).raise_for_status()
    return {"name": name, "target": target}


def modes(path: Path) -> dict[str, str]:
    """The modes of a file, or of a folder and what is below it; locks have names with a dot."""
    found = [path, *path.rglob("[!.]*")]
    return {str(each.relative_to(path.parent)): stat.filemode(each.stat().st_mode) for each in found}


def expected(found: dict[str, str], mask: int) -> dict[str, str]:
    folder, file = (stat.filemode(kind | mode & ~mask) for kind, mode in ((stat.S_IFDIR, 0o777), (stat.S_IFREG, 0o666)))
    return {name: folder if mode.startswith("d") else file for name, mode in found.items()}


def test_each_option_with_a_path_has_a_row():
    options = {
        f"{' '.join(words)} {each.opts[-1]}"
        for words, command in leaves(app).items()
        for each in command.params
        if "Path" in str(each.type_descriptor.annotation) and each.opts[-1] not in OF_ALL
    }
    assert options == {*PRIVATE, *SHARED, *READ}


@pytest.mark.parametrize("option", [*PRIVATE, *SHARED])
def test_new_files_have_the_mode_that_the_reference_says(rioni, data, names, tmp_path, option):
    with running(Path(data)) as base:
        build_checkpoint_signer(base).checkpoint()
    (tmp_path / "events.jsonl").write_text('{"order_id": 1, "metadata": 1}\n')
    command, _, last = option.rpartition(" ")
    for mask in (0o000, 0o027, 0o077):
        made = tmp_path / f"made-{mask:o}"
        arguments = [*command.split(), *PRIVATE.get(option, SHARED.get(option, "")).format(**names).split()]
        with umask(mask):
            _, out, err = rioni(*arguments, last, str(made))
        assert made.exists(), (out, err)
        found = modes(made)
        assert found == expected(found, 0o077 if option in PRIVATE else mask), (out, err)
