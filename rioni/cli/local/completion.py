"""The command that prints what a shell needs to complete commands."""

from enum import StrEnum
from typing import Annotated

import typer

from rioni.cli.options import Json
from rioni.cli.output import Output


app = typer.Typer()


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
    the broker of the command line so far, for a second at most; if it does not answer, there are none.
    """
    from typer import completion as scripts

    from rioni.cli.app import COMPLETE

    script = scripts.get_completion_script(  # type: ignore[attr-defined] # without a public name
        prog_name="rioni", complete_var=COMPLETE, shell=shell
    )
    output = Output(json)
    output.line({"shell": shell, "script": script}, script)
