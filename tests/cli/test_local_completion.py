"""The scripts for shells, in these shells: names of a broker are completed, and never evaluated."""

import os
import shlex
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from tests.support.http_servers import serving
from tests.support.waiting import WAIT_S


TIMEOUT_S = 60
HARMLESS = "order.created"
HOSTILE = (
    "order.$(touch ran)",
    "order.`touch ran`",
    "order.\\$(touch ran)",
    "order.\\`touch ran\\`",
    "order.'$(touch ran)'",
    "order.'; touch ran; '",
    'order."; touch ran; "',
    "order.))'; touch ran; #",
    "order.\n touch ran\n",
    "order.${$(touch ran)}",
    "order.<(touch ran)",
    "order.|touch ran",
    "order.*",
    "order.{a,b}",
    "order.~",
    "order. ran",
    "order.\x1b]0;title\x07",
    "order.\u202e",
    "-rf",
    "!!",
)
"""Names that a server may send, whatever this one accepts."""


class _Broker(BaseHTTPRequestHandler):
    def do_GET(self):
        common = {"owning_application": "$(touch ran)", "category": "business", "schema": {"schema": "{}"}}
        body = msgspec.json.encode([{"name": name, **common} for name in (*HOSTILE, HARMLESS)])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def hostile():
    """The URL of a broker with such names."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Broker)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def shell(run, tmp_path, hostile):
    """Run a script in a shell that has the completion of this program; return what it writes."""
    program = tmp_path / "bin" / "rioni"
    program.parent.mkdir()
    patient = "from rioni.cli import app; from rioni.cli.connections import completions"
    patient += f"; completions.DEADLINE_S = {TIMEOUT_S}; app.main()"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(patient)} "$@"\n')
    program.chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "RIONI_URL": hostile,
        "HOME": str(tmp_path),
        "TERM": "dumb",
    }

    def ask(name, script):
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")
        Path("completion").write_text(run("completion", name)[1])
        done = subprocess.run(
            [name, *(("-f",) if name == "zsh" else ()), "-c", script],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return ask


BASH = """
source ./completion
COMP_WORDS=(rioni tail ord); COMP_CWORD=2
_rioni_completion rioni ord tail
printf '%s\\n' "${COMPREPLY[@]}"
eval "echo ${COMPREPLY[*]}" >/dev/null
"""
# A separate terminal, in which keys are pressed: zsh completes nothing otherwise.
ZSH = """
zmodload zsh/zpty
zpty -b z zsh -f -i
zpty -w z 'PS1=; autoload -Uz compinit; compinit -u -D; source ./completion; setopt nobeep; unsetopt prompt_cr'
zpty -w z $'_show() { zle -I; print -r -- "<<$BUFFER>>"; exit }; zle -N _show; bindkey "^X" _show; print ready'
for _ in {1..600}; do zpty -r -t z line && [[ $line == ready* ]] && break; sleep 0.05; done
zpty -n -w z $'rioni tail ord\\t\\x18'
for _ in {1..600}; do
  zpty -r -t z line && { print -rn -- $line; [[ $line == *'>>'* ]] && break } || sleep 0.05
done
zpty -d z
"""
FISH = """
source ./completion
complete -C 'rioni tail ord'
"""


@pytest.mark.parametrize(("name", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_names_of_a_broker_are_completed_and_never_evaluated(shell, name, script):
    shown = shell(name, script)
    if name == "zsh":
        assert f"<<rioni tail {HARMLESS} >>" in shown
    else:
        assert shown.split() == [HARMLESS]
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_protocols_of_the_scripts_of_others_have_no_such_names_either(run, hostile, monkeypatch, name):
    """Users who installed typer's own script of an earlier release evaluate what is printed for zsh."""
    monkeypatch.setenv("RIONI_URL", hostile)
    monkeypatch.setenv("_RIONI_COMPLETE", f"complete_{name}")
    monkeypatch.setenv("COMP_WORDS", "rioni\ntail\n")
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "rioni tail ")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    _, out, _ = run()
    assert HARMLESS in out
    assert "touch" not in out
    assert out.count("order") == 1


@pytest.mark.parametrize("context", ["a$(touch ran)", "b`touch ran`", "c d", "e;f"])
def test_names_of_contexts_that_a_shell_would_evaluate_are_not_completed(run, monkeypatch, context):
    for each in ("plain-1.x", context):
        assert run("context", "add", each, "--url", "http://localhost:1")[0] == 0
    monkeypatch.setenv("_RIONI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "rioni\ncontext\nuse\n")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run()[1].split() == ["plain-1.x"]
