"""The command line: runs the command that the arguments name, and reports errors in one line.

The modules of commands, and those that do the work, are imported when a command is used: each one starts quickly.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer import completion
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from rioni import __version__
from rioni.cli.terminal.ending import BROKEN_PIPE, run
from rioni.cli.terminal.output import say
from rioni.cli.terminal.streams import discard_output


# --- All commands by name: what `rioni --help`, the documentation and the completion show, imported when it is used ---


class Section(NamedTuple):
    """Commands that belong together.

    Args:
        title: their heading.
        commands: the modules of each, below `rioni.cli`. A module has an `app`, or what is named behind a colon: with
            the name of the command it is a group of commands, and those of further modules are added; without a name
            the command is one of several.
    """

    title: str
    commands: Mapping[str, tuple[str, ...]]


SECTIONS: Mapping[str, Section] = {
    "host": Section(
        "On the host of a broker",
        {
            "serve": ("host.serve",),
            "demo": ("host.serve",),
            "migrate": ("host.operations",),
            "verify": ("host.operations",),
            "accept-loss": ("host.operations",),
            "rebuild": ("host.rebuild",),
            "projections": ("host.rebuild:projections_app",),
            "backup": ("host.operations",),
            "restore": ("host.operations",),
            "audit": ("host.audit", "broker.log:audit_app"),
            "config": ("host.serve:config_app",),
            "tokens": ("host.serve:tokens_app",),
            "cluster": ("host.serve:cluster_app",),
        },
    ),
    "registry": Section(
        "Event types and subscriptions",
        {
            "event-types": ("registry.event_types", "definitions.event_type_files", "registry.event_types:facets_app"),
            "subscriptions": (
                "registry.subscriptions",
                "registry.subscription_lag",
                "registry.subscription_cursors",
                "registry.subscription_events",
            ),
            "schemas": ("registry.schemas",),
            "partitions": ("registry.partitions",),
            "timelines": ("registry.partitions:timelines_app",),
            "types": ("registry.schemas:models_app",),
            "registry": ("registry.schemas:registry_app",),
            "dead-letters": ("registry.subscription_events:dead_letters_app",),
        },
    ),
    "events": Section(
        "Events",
        {
            "publish": ("events.publish",),
            "tail": ("events.show",),
            "search": ("events.show",),
            "copy": ("events.copy",),
            "events": ("events.publish:events_app",),
        },
    ),
    "broker": Section(
        "The whole broker",
        {
            "settings": ("broker.administration:settings_app",),
            "storages": ("broker.administration:storages_app",),
            "monitoring": ("broker.monitoring",),
            "jobs": ("broker.monitoring:jobs_app",),
            "rebuilds": ("broker.monitoring:rebuilds_app",),
            "log": ("broker.log:log_app",),
            "witness": ("broker.log",),
            "archive": ("broker.archive",),
            "convert-archive": ("broker.archive",),
            "bench": ("broker.bench_command",),
            "doctor": ("doctor.command",),
        },
    ),
    "local": Section(
        "This command line",
        {
            "context": ("local:context_app",),
            "cheat": ("local",),
            "completion": ("local",),
            "man": ("local",),
        },
    ),
}
MODULES = {name: modules for section in SECTIONS.values() for name, modules in section.commands.items()}
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
"""A link in Markdown: its text and its target."""
BOXES_COLUMNS_MIN = 80
"""The width of a terminal in which no box cuts off the name of an option."""
PANELS = {name: section.title for section in SECTIONS.values() for name in section.commands}


class LazyCommands(MutableMapping[str, TyperCommand | TyperGroup]):
    """The commands by name, each imported when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        """The command; KeyError if there is none."""
        if name not in self._loaded:
            self._loaded[name] = _load(name, boxes=shutil.get_terminal_size().columns >= BOXES_COLUMNS_MIN)
        return self._loaded[name]

    def __setitem__(self, name: str, command: TyperCommand | TyperGroup) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


CONNECTION = MappingProxyType(
    {**dict.fromkeys(("--url", "--context", "--token", "--ca-certificate", "--timeout"), 1), "--json": 0}
)
"""Options of all commands that ask a broker, which may stand before the command as well; how many words follow each."""


class Commands(TyperGroup):
    """The group of all commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse arguments, after moving options of the connection that precede a command to after it.

        Raises:
            typer.BadParameter: the command works on this host's data, and has no connection.
        """
        return super().parse_args(ctx, self._reordered(args))

    def _reordered(self, args: list[str]) -> list[str]:
        words: list[str] = []
        moved: list[str] = []
        rest, command = list(args), cast("Any", self)
        while rest:
            option = rest[0].partition("=")[0]
            if option in CONNECTION and not _has(command, option):
                size = 1 if "=" in rest[0] else 1 + CONNECTION[option]
                moved += rest[:size]
                del rest[:size]
            elif rest[0] in (commands := getattr(command, "commands", {})):
                words.append(rest.pop(0))
                command = commands[words[-1]]
            else:
                break
        if words and words[0] == "audit":
            _check_is_no_connection(words, command, [*moved, *rest])
        # Without a command the options have no effect, so help is shown.
        return [*words, *moved, *rest] if words or rest else []

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", LazyCommands())  # typer asks for a mapping of classes that it does not export

    def invoke(self, ctx: Any) -> Any:
        """Run a command; silent if the program that reads its output has ended."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as ex:
            # click would take it for an error of the command.
            discard_output()
            raise typer.Exit(BROKEN_PIPE) from ex


def _has(command: Any, option: str) -> bool:
    return any(option in each.opts for each in command.params)


def _check_is_no_connection(words: list[str], command: Any, args: list[str]) -> None:
    """Refuse options of the connection for a command for auditors if it reads the data of this host."""
    before = args[: args.index("--")] if "--" in args else args
    for each in before:
        option = each.partition("=")[0]
        if option in CONNECTION and not _has(command, option):
            raise typer.BadParameter(
                f"`rioni {' '.join(words)}` reads the data of a broker on its host, and asks none. "
                "`rioni audit list`, `rioni audit denials` and `rioni log` ask a running broker.",
                param_hint=option,
            )


def _summarise(command: Any) -> None:
    """Let lists and completions show the whole first sentence, without the targets of its links."""
    command.short_help = LINK.sub(r"\1", " ".join((command.help or "").partition("\n\n")[0].split()))
    for each in getattr(command, "commands", {}).values():
        _summarise(each)


@cache
def _load(name: str, *, boxes: bool) -> TyperCommand | TyperGroup:
    """One of `MODULES`, which shows its options in boxes or else as plain text; each is made once in a process."""
    groups = []
    for module in MODULES[name]:
        path, _, shown = module.partition(":")
        app: typer.Typer = getattr(import_module(f"rioni.cli.{path}"), shown or "app")
        app.rich_markup_mode = "markdown" if boxes else None
        groups.append(get_group(app))
    command: Any = groups[0] if groups[0].name == name else groups[0].commands[name]
    for other in groups[1:]:
        command.commands.update(other.commands)
    command.rich_help_panel = PANELS[name]
    _summarise(command)
    return cast("TyperCommand | TyperGroup", command)


# --- The command line itself ---

COMPLETE = "_RIONI_COMPLETE"
"""The variable by which a shell asks for completions."""

app = typer.Typer(
    name="rioni",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command that `sys.argv` names, and exit."""
    if COMPLETE in os.environ:
        # Registers the shells, as Typer's own option `--show-completion` does.
        completion.get_completion_inspect_parameters()
    run(app, "rioni", complete_var=COMPLETE)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if wanted:
        say(f"rioni {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Rioni, an event broker that serves the Nakadi API.

    Commands that ask a broker take `--context`, `--url`, `--token`, `--ca-certificate`, `--timeout` and `--json` before
    their name as well as after it.
    """
    del version  # its callback has already handled it
