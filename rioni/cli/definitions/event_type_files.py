"""Commands that compare files with a broker, and make the broker match the files."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.connection import DEFAULT_ORIGIN, resolve
from rioni.cli.connections.options import AsOf, check_event_type
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.definitions import printing
from rioni.cli.options import Yes
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import Output
from rioni.domain.errors import Invalid
from rioni.domain.texts import proposal


if TYPE_CHECKING:
    from collections.abc import Sequence

    from rioni.cli.definitions.definition import Definition, DefinitionError
    from rioni.cli.definitions.planning import ChangePlan, Prune
    from rioni.client import Client

app = typer.Typer(name="event-types")

Paths = Annotated[
    list[str],
    typer.Argument(
        help="Files, and folders with .yaml, .yml, .json and .jsonl at any depth; - is standard input.",
        metavar="PATH...",
    ),
]


@app.command(
    epilog="Example: rioni event-types apply definitions/\n\n"
    "Example: rioni event-types apply definitions/ --dry-run --context prod\n\n"
    "Example: rioni event-types apply definitions/ --prune --owning-application shop --yes\n\n"
    "Example: rioni event-types apply --schema > rioni.schema.json"
)
@connected
def apply(
    session: BrokerSession,
    paths: Paths = [],  # noqa: B006 - never changed
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan; exit code 1 if there is something to do.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete event types of --owning-application that no file names.")
    ] = False,
    prune_subscriptions: Annotated[
        bool,
        typer.Option("--prune-subscriptions", help="Delete subscriptions of --owning-application that no file names."),
    ] = False,
    owning_application: Annotated[str | None, typer.Option(help="Whose resources are pruned.")] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the files, for editors, and do nothing else.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make event types and subscriptions match files: shows the plan, asks, and changes what differs.

    A file has documents in YAML, separated by `---`, or in JSON. Each one is a definition as `rioni event-types show
    --yaml` prints it; with `kind: subscription` it is that of a subscription. `schema_file` may name a file instead of
    `schema`. Members that a document lacks keep the value they have, or get the default of the API; members that are
    there replace it as a whole. [Event types and subscriptions as files](operating/definitions.md) describes the
    format.

    Before anything is changed, all files are read, their problems are reported together with file and line, and the
    broker is asked whether each changed schema is compatible. An event type that another client changed after the plan
    was made is not changed. An interrupted command can be repeated; applying the same files again changes nothing.
    """
    from rioni.cli.definitions.definition import json_schema

    if schema:
        session.output.line(json_schema(), json.dumps(json_schema(), indent=2))
        return
    pruned = _prune(owning_application, event_types=prune, subscriptions=prune_subscriptions)
    plan = _plan(session, paths, pruned)
    if not dry_run:
        printing.carry_out(session, plan.steps, yes=yes)
        return
    _show(session.output, plan)


@app.command(
    epilog="Example: rioni event-types check definitions/\n\n"
    "Example: rioni event-types check definitions/ --against main/definitions/\n\n"
    "Example: rioni event-types show order.created --json | rioni event-types check - --context test"
)
@connected
def check(
    session: BrokerSession,
    paths: Paths,
    *,
    against: Annotated[
        str | None,
        typer.Option(help="Ask no broker: compare with the definitions in this file or folder.", metavar="PATH"),
    ] = None,
) -> None:
    """Check definitions as `rioni event-types apply` does, and change nothing; exit code 1 if anything is wrong.

    If a broker is named, by an option, the environment or a context, the definitions are compared with its resources.
    Otherwise no broker is needed: they are checked by the same rules, filters of subscriptions against the schemas of
    their event types, and changed schemas against the definitions that `--against` names, such as those of the main
    branch. Rules that depend on the settings of a broker are not checked then. Standard error reports which of both was
    done.

    A schema that is not compatible is shown with an example of an event that would become invalid, if one is found.
    """
    from rioni.cli.definitions.files import STANDARD_INPUT, definitions_in

    if missing := [each for each in paths if each != STANDARD_INPUT and not os.access(each, os.R_OK)]:
        # The contents are unknown, so this is no error in a definition.
        raise Invalid(f"{missing[0]} can't be read: there is no such file or folder, or no permission.")
    found, problems = definitions_in(paths)
    if not found and not problems:
        raise Invalid(f"There are no definitions in {', '.join(paths)}.")
    problems = [*problems, *_problems_of(session, found, against)]
    columns = {"file": "file", "line": "line", "name": "name", "problem": "problem"}
    rows = [
        {"file": each.place.file, "line": each.place.line, "name": each.about, "problem": each.text}
        for each in sorted(problems)
    ]
    if rows or session.output.json:
        session.output.items(rows, columns)
    else:
        session.output.line(None, f"Nothing is wrong with {printing.counted(len(found), 'definition')}.")
    if rows:
        raise typer.Exit(FOUND)


@app.command(
    epilog="Example: rioni event-types diff definitions/ --context prod\n\n"
    "Example: rioni event-types diff order.created --as-of 2026-01-31\n\n"
    "Example: rioni event-types diff order.created --against-context prod\n\n"
    "Example: rioni event-types diff order.created --against @1.0.0"
)
@connected
def diff(
    session: BrokerSession,
    target: Annotated[
        str,
        typer.Argument(
            help="File or folder; or name of an event type, with @VERSION for a version of its schema.",
            autocompletion=completions.event_types,
            metavar="PATH|NAME[@VERSION]",
        ),
    ],
    *,
    against: Annotated[
        str | None,
        typer.Option(help="Another event type, or version of the schema.", metavar="[NAME][@VERSION]"),
    ] = None,
    against_context: Annotated[
        str | None,
        typer.Option(help="The broker of this context.", autocompletion=completions.contexts, metavar="NAME"),
    ] = None,
    as_of: AsOf = None,
) -> None:
    """Show what differs, from the one that it is compared with to the target; exit code 1 if anything does.

    Files are compared with the broker: it is what `apply` would change. An event type is compared with another one,
    with the same of another broker, or with its earlier state (`--as-of`). Schemas are compared as JSON.
    """
    if Path(target).exists() or target == "-":
        if against or against_context or as_of:
            raise Invalid(f"{target} is a file, which is compared with the broker; --context names another one.")
        _show(session.output, _plan(session, [target], None))
        return
    if not (against or against_context or as_of):
        raise Invalid(_lacks_a_comparison(session.client, target))
    _show_differences_of_two(session, target, against or "", against_context, as_of)


def _lacks_a_comparison(client: "Client", target: str) -> str:
    """The error about a target that is no file, and is compared with nothing."""
    name = target.partition("@")[0]
    known = [each.name for each in client.event_types.list()]
    if name in known:
        return f"{target} is an event type; name what to compare it with: --against, --against-context or --as-of."
    files = [str(each) for each in Path(target).parent.glob("*")]
    return f"There is neither a file nor an event type {target}{proposal(name, [*known, *files])}"


def _show_differences_of_two(
    session: BrokerSession, target: str, against: str, against_context: str | None, as_of: str | None
) -> None:
    from rioni.cli.definitions.definition import differences

    name, _, version = target.partition("@")
    other_name, _, other_version = against.partition("@")
    if as_of and (version or other_version):
        raise Invalid("A version of a schema never changes: use --as-of without versions.")
    only_schema = bool(version or other_version)
    wanted = _members(session.client, name, version, only_schema=only_schema)
    if against_context is None:
        base = _members(session.client, other_name or name, other_version, only_schema=only_schema, as_of=as_of)
    else:
        connection = resolve(context=against_context, timeout_s=session.connection.timeout_s)
        with BrokerSession(connection, session.output) as other:
            base = _members(other.client, other_name or name, other_version, only_schema=only_schema, as_of=as_of)
    if other_name:
        # Two event types were chosen by name, so their names differ anyway.
        base, wanted = ({key: value for key, value in each.items() if key != "name"} for each in (base, wanted))
    found = differences(base, wanted)
    printing.show_differences(session.output, found)
    if found:
        raise typer.Exit(FOUND)


def _members(client: "Client", name: str, version: str, *, only_schema: bool, as_of: str | None = None) -> Any:
    from rioni.cli.definitions.definition import comparable
    from rioni.client import NotFound

    try:
        if only_schema:
            return comparable({"schema": client.schemas.get(name, version or "latest").members()})
        return comparable(client.event_types.get(name, as_of=as_of).members())
    except NotFound:
        check_event_type(client, name)
        raise


def _plan(session: BrokerSession, paths: "Sequence[str]", prune: "Prune | None") -> "ChangePlan":
    """The plan for files; reports all problems of the files, and raises Invalid then."""
    from rioni.cli.definitions.files import definitions_in
    from rioni.cli.definitions.planning import plan

    if not paths:
        raise Invalid("Name the files or folders with the definitions.")
    found, problems = definitions_in(paths)
    if not found and not problems:
        raise Invalid(f"There are no definitions in {', '.join(paths)}.")
    printing.report(session.output, problems)
    planned = plan(session.client, found, prune)
    printing.report(session.output, planned.problems)
    if count := len(problems) + len(planned.problems):
        raise Invalid(f"{printing.counted(count, 'problem')}; nothing was changed.")
    return planned


def _problems_of(
    session: BrokerSession, found: "Sequence[Definition]", against: str | None
) -> "Sequence[DefinitionError]":
    """Return the problems of definitions; a note on standard error names what they were compared with."""
    from rioni.cli.definitions.broker_rules import check_offline
    from rioni.cli.definitions.files import definitions_in
    from rioni.cli.definitions.planning import plan

    named = session.connection.origin != DEFAULT_ORIGIN
    if against is None and named:
        session.output.note(f"Compared with the broker at {session.connection.url} ({session.connection.origin}).")
        return plan(session.client, found).problems
    if against is not None and session.connection.origin == "--url":
        raise Invalid("--against compares with definitions, --url with a broker: use one of both.")
    before, wrong = definitions_in([against]) if against else ([], [])
    if wrong:
        raise Invalid(f"{wrong[0]}; definitions are compared with those that a broker took.")
    session.output.note(f"Checked without a broker, {f'compared with {against}' if against else 'as new ones'}.")
    problems, warnings = check_offline(found, before)
    printing.report(session.output, warnings)
    return problems


def _prune(owning_application: str | None, *, event_types: bool, subscriptions: bool) -> "Prune | None":
    from rioni.cli.definitions.planning import Prune

    wanted = event_types or subscriptions
    if wanted and owning_application is None:
        raise Invalid("Use --owning-application to name the application whose resources are pruned.")
    if owning_application is None:
        return None
    if not wanted:
        raise Invalid("--owning-application names the application whose resources are pruned; use it with --prune.")
    return Prune(owning_application, event_types, subscriptions)


def _show(output: Output, plan: "ChangePlan") -> None:
    """Show a plan that is not carried out; exit code 1 if there is something to do."""
    if output.json:
        for each in plan.steps:
            printing.write_step(output, each, "unchanged" if each.action == "keep" else "planned")
    else:
        printing.show_steps(plan.steps)
    if plan.changes:
        raise typer.Exit(FOUND)
