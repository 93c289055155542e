"""The command that prints what a shell needs to complete commands.

The scripts read completions line by line, and evaluate none of them: typer's own script for zsh does.
"""

from enum import StrEnum
from typing import Annotated

import typer

from rioni.cli.options import Json
from rioni.cli.terminal.output import Output, say


app = typer.Typer()


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
    the broker of the command line so far, for a second at most; if it does not answer, there are none.
    """
    script = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}[shell].strip()
    output = Output(json)
    if json:
        output.line({"shell": shell, "script": script}, "")
    else:
        say(script)
