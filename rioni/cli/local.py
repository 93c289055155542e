"""Commands about the command line itself: contexts, examples, completion and manual pages."""

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.connection import (
    NO_SECRETS,
    SavedContext,
    changed_contexts,
    contexts_file,
    read_contexts,
    resolve,
)
from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, say, write_file
from rioni.cli.terminal.streams import CannotWrite
from rioni.config import variables
from rioni.domain.errors import Invalid
from rioni.domain.texts import proposal


# --- The command that shows examples by topic ---

app = typer.Typer()


def _topics() -> list[str]:
    from rioni.cli.documentation import topics

    return list(topics())


@app.command(epilog="Example: rioni cheat contexts")
def cheat(
    topic: Annotated[
        str | None, typer.Argument(help="The topic; by default all are listed.", autocompletion=_topics)
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show examples for a topic, which can be copied: each of them is run in the tests of this release."""
    from rioni.cli.documentation import topics

    output = Output(json)
    found = topics()
    if topic is None:
        output.items(
            [{"topic": each.name, "title": each.title} for each in found.values()], {"topic": "topic", "title": "title"}
        )
        return
    if topic not in found:
        listed = f"; there are: {', '.join(found)}."
        raise Invalid(f"There is no topic {topic}{proposal(topic, found, listed)}")
    wanted = found[topic]
    if json:
        output.item({"topic": topic, "title": wanted.title, "examples": [each._asdict() for each in wanted.examples]})
        return
    typer.secho(wanted.title, bold=True)
    for example in wanted.examples:
        say("")
        if example.words:
            typer.secho(f"# {example.words}", dim=True)
        if example.commands:
            say(example.commands)


# --- The command that prints what a shell needs to complete commands ---
#
# The scripts read completions line by line, and evaluate none of them: typer's own script for zsh does.

BASH = r"""
_rioni_completion() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(IFS=$'\n'; COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        _RIONI_COMPLETE=complete_bash "$1" 2>/dev/null)
}

complete -o default -F _rioni_completion rioni
"""
ZSH = r"""
#compdef rioni

_rioni_completion() {
  local line value
  local -a described
  while IFS= read -r line; do
    value="${line%%$'\t'*}"
    value="${value//:/\\:}"
    [[ "$line" == *$'\t'* ]] && value+=":${line#*$'\t'}"
    described+=("$value")
  done < <(_TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _TYPER_COMPLETE_FISH_ACTION=get-args \
    _RIONI_COMPLETE=complete_fish "${words[1]}" 2>/dev/null)
  if (( ${#described} )); then
    _describe rioni described
  else
    _files
  fi
}

compdef _rioni_completion rioni
"""
FISH = r"""
function __rioni_completion
    _RIONI_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] \
        _TYPER_COMPLETE_ARGS=(commandline -cp | string collect) rioni 2>/dev/null
end

complete --command rioni --no-files --arguments "(__rioni_completion get-args)" --condition "__rioni_completion is-args"
"""


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(epilog="Example: rioni completion bash > ~/.local/share/bash-completion/completions/rioni")
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")], *, json: Json = False) -> None:
    """Print a script that completes commands, options, and names of event types, subscriptions and contexts.

    For bash, `source <(rioni completion bash)` or the example; for zsh, `source <(rioni completion zsh)` in `~/.zshrc`
    after `compinit`; for fish, `rioni completion fish > ~/.config/fish/completions/rioni.fish`. Names are asked from
    the broker of the command line so far, for a second at most; if it does not answer, none are completed.
    """
    script = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}[shell].strip()
    output = Output(json)
    if json:
        output.line({"shell": shell, "script": script}, "")
    else:
        say(script)


# --- The command that prints manual pages ---


@app.command(epilog="Example: rioni man audit log | man -l -\n\nExample: rioni man --to ~/.local/share/man/man1")
def man(
    command: Annotated[list[str] | None, typer.Argument(help="Words of a command; by default `rioni` itself.")] = None,
    *,
    to: Annotated[
        Path | None, typer.Option(help="Write the pages of all commands to this folder.", metavar="DIR")
    ] = None,
    json: Json = False,
) -> None:
    """Print the manual page of a command, or write all of them, in the format of `man`.

    The pages have the text of `--help`. With `--to` each command gets a file, such as `rioni-audit-log.1`: a folder
    that `manpath` names makes `man rioni-audit-log` work.
    """
    from rioni.cli.documentation import as_roff, pages

    output = Output(json)
    found = pages()
    if to is not None:
        try:
            to.mkdir(parents=True, exist_ok=True)
        except OSError as ex:
            raise CannotWrite(f"{to} can't be written: {ex.strerror}.") from ex
        for page in found.values():
            write_file(to / f"{page.name.replace(' ', '-')}.1", as_roff(page))
        output.line({"folder": str(to), "pages": len(found)}, f"{len(found)} pages are in {to}.")
        return
    name = " ".join(["rioni", *(command or [])])
    if name not in found:
        words = (each.removeprefix("rioni ") for each in found)
        otherwise = "; `rioni --help` lists them."
        raise Invalid(f"There is no command `{name}`{proposal(' '.join(command or ()), words, otherwise)}")
    text = as_roff(found[name])
    output.line({"name": name, "page": text}, text.rstrip("\n"))


# --- Commands about contexts ---


context_app = typer.Typer(
    name="context",
    no_args_is_help=True,
    help="Brokers by name, for all commands over HTTP.",
)

Name = Annotated[str, typer.Argument(help="Name of the context.")]
Known = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=completions.contexts)]


@context_app.command(
    epilog="Example: rioni context add prod --url https://broker.example.org "
    "--token-command 'vault read -field=token secret/broker'"
)
def add(
    name: Name,
    *,
    url: Annotated[str, typer.Option(help="Base URL of the API.", metavar="URL")],
    token_command: Annotated[
        str | None,
        typer.Option(help="A command that prints the token; run without a shell.", metavar="COMMAND"),
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(help="Name of a variable that holds the token.", metavar="VARIABLE")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Refused: secrets are not kept in files.", metavar="TOKEN", hidden=True)
    ] = None,
    ca_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the authorities to trust.", metavar="FILE")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on; the first one is used anyway.")] = False,
    json: Json = False,
) -> None:
    """Add a context, or replace the one of this name.

    The file of contexts holds no secrets, only where a token comes from. The words of `--token-command` are split as in
    a shell, but run without one; write `sh -c '...'` where it takes a pipe. It has 30 seconds, and its output is the
    token. It is run for each command, and once again when the broker answers 401, so it should keep what it fetches.
    """
    if token is not None:
        raise Invalid(f"--token: {NO_SECRETS}.")
    authority = None if ca_certificate is None else str(ca_certificate.absolute())
    context = SavedContext(url, token_command, token_env, authority)
    with changed_contexts() as contexts:
        contexts.contexts[name] = context
        if use or contexts.current is None:
            contexts.current = name
        current = contexts.current == name
    _done(name, context, f"is in {contexts_file()}{', and in use' if current else ''}", json=json, current=current)


@context_app.command("list", epilog="Example: rioni context list")
def list_contexts(*, json: Json = False) -> None:
    """Show all contexts; the one in use is marked."""
    contexts = read_contexts()
    items = [
        _item(name, context, current=name == contexts.current) for name, context in sorted(contexts.contexts.items())
    ]
    Output(json).items(
        items,
        {
            "": lambda item: "*" if item["current"] else "",
            "name": "name",
            "url": "url",
            "token": lambda item: item["token_command"] or (item["token_env"] and f"${item['token_env']}"),
            "authorities": "ca_certificate",
        },
    )


@context_app.command(epilog="Example: rioni context show")
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the context; by default what commands would use.", autocompletion=completions.contexts
        ),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show which broker commands use now, and why: the context in use, or the variables of the environment.

    Nothing is fetched, and no token is shown.
    """
    connection = resolve(context=name)
    has_token = connection.token is not None
    shown = {"url": connection.url, "from": connection.origin, "token": "yes" if has_token else "no"}
    authority = connection.ca_certificate
    Output(json).item(shown | {"ca_certificate": None if authority is None else str(authority)})


@context_app.command(epilog="Example: rioni context use prod")
def use(name: Known, *, json: Json = False) -> None:
    """Use a context from now on, in all shells; `RIONI_CONTEXT` or `--context` do so for one shell or command."""
    with changed_contexts() as contexts:
        context = contexts.get(name)
        contexts.current = name
    overridden = [name for name in (variables.URL, variables.CONTEXT) if os.environ.get(name)]
    stronger = f", but {' and '.join(overridden)} of this shell is stronger" if overridden else ""
    _done(name, context, f"is in use{stronger}", json=json, current=True)


@context_app.command(epilog="Example: rioni context remove prod")
def remove(name: Known, *, json: Json = False) -> None:
    """Remove a context."""
    with changed_contexts() as contexts:
        context = contexts.get(name)
        del contexts.contexts[name]
        if contexts.current == name:
            contexts.current = None
    _done(name, context, "is removed", json=json, current=False)


def _item(name: str, context: SavedContext, *, current: bool) -> dict[str, object]:
    return {"name": name, **asdict(context), "current": current}


def _done(name: str, context: SavedContext, what: str, *, json: bool, current: bool) -> None:
    Output(json).line(_item(name, context, current=current), f"{name} ({context.url}) {what}.")
