"""Commands for the log of a running broker: the audit trail, proofs that nothing was changed, and witnesses."""

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rioni.cli.connections import completions
from rioni.cli.connections.session import BrokerSession, connected
from rioni.cli.options import SECONDS_MAX, log_time
from rioni.cli.terminal.ending import FOUND
from rioni.cli.terminal.output import Output, as_sentence, say, write_file
from rioni.cli.terminal.tables import actor_of
from rioni.domain.errors import Invalid
from rioni.files.plain import read_file


if TYPE_CHECKING:
    from rioni.cli.broker.witnessing import Seen


# --- Commands of `rioni audit` that ask a running broker, for the entries that its users may see ---

audit_app = typer.Typer(name="audit")

ENTRIES_MAX = 1_000_000
"""The most entries of a list; `--all` has no bound."""
Limit = Annotated[int, typer.Option(help="How many at most.", min=1, max=ENTRIES_MAX)]
ALL = "`--limit` and `--all` show them."
Everything = Annotated[bool, typer.Option("--all", help="All of them, whatever the limit.")]


def _time(text: str) -> str:
    return log_time(text)


@audit_app.command("list", epilog="Example: rioni audit list --resource event-type:order.created --since 2026-01-01")
@connected
def list_changes(
    session: BrokerSession,
    *,
    resource: Annotated[
        str | None,
        typer.Option(
            help="The changed resource, such as `event-type:order.created`.", autocompletion=completions.resources
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="`event-type`, or more exactly `event-type.created`.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only what subjects of this name did.")] = None,
    realm: Annotated[str | None, typer.Option(help="Only what the actor of this realm did.")] = None,
    flow_id: Annotated[str | None, typer.Option(help="Only what this request did.")] = None,
    since: Annotated[
        str | None, typer.Option(help="First time, RFC 3339 or a day in UTC.", metavar="TIME", parser=_time)
    ] = None,
    until: Annotated[str | None, typer.Option(help="End, not included.", metavar="TIME", parser=_time)] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="In the order of the log.")] = False,
    states: Annotated[bool, typer.Option("--states", help="Also the states before and after, in JSON.")] = False,
    limit: Limit = 100,
    everything: Everything = False,
) -> None:
    """Ask a running broker who changed what, newest first.

    For administrators and readers of the broker, and those whom the setting `audit_readers` names:
    [the audit trail](reference/audit.md). On its host `rioni audit` reads the same from its data.
    """
    found = session.client.audit.entries(
        resource=resource,
        kind=kind,
        actor=actor,
        realm=realm,
        flow_id=flow_id,
        since=since,
        until=until,
        order="asc" if oldest_first else "desc",
        states=states,
        limit=None if everything else limit + 1,
    )
    _say_source(session)
    session.output.first(
        found,
        None if everything else limit,
        {
            "position": "position",
            "when": "recorded_at",
            "who": actor_of,
            "from": "address",
            "what": "kind",
            "resource": "resource",
            "changed": _changed,
        },
        ALL,
    )


@audit_app.command(epilog="Example: rioni audit denials --limit 20")
@connected
def denials(session: BrokerSession, *, limit: Limit = 100, everything: Everything = False) -> None:
    """Ask a running broker for requests that it refused with 401 or 403, newest first."""
    _say_source(session)
    session.output.first(
        session.client.audit.denials(),
        None if everything else limit,
        {
            "last": "last_at",
            "times": "count",
            "status": "status",
            "method": "method",
            "path": "path",
            "who": actor_of,
            "from": "address",
        },
        ALL,
    )


def _say_source(session: BrokerSession) -> None:
    if not session.output.json:
        where = f"{session.connection.url} ({session.connection.origin})"
        session.output.note(f"From the broker at {where}; `rioni audit` reads the data on this host.")


def _changed(entry: Any) -> list[str]:
    """The paths of the members that were changed."""
    return [change["path"] for change in entry["changes"]]


# --- Commands for proofs that the log of a broker was never changed, over HTTP ---

log_app = typer.Typer(
    name="log", no_args_is_help=True, help="Proofs that the log was never changed; `rioni witness` verifies them."
)

Position = Annotated[int, typer.Argument(help="Position of the entry in the log.", min=1)]


@log_app.command(epilog="Example: rioni log checkpoint > monday.checkpoint")
@connected
def checkpoint(
    session: BrokerSession,
    *,
    cosigned: Annotated[bool, typer.Option("--cosigned", help="The newest one that a witness has cosigned.")] = False,
) -> None:
    """Show a signed [checkpoint](reference/transparency-log.md#checkpoints); keep it to verify the log later."""
    note = session.client.log.checkpoint(cosigned=cosigned)
    session.output.line({"note": note}, note.rstrip("\n"))


@log_app.command(epilog="Example: rioni log cosign cosigned.checkpoint")
@connected
def cosign(
    session: BrokerSession, file: Annotated[Path, typer.Argument(help="A checkpoint with cosignatures of witnesses.")]
) -> None:
    """Give cosignatures of a checkpoint to the broker, which keeps the newest one of each witness."""
    try:
        note = read_file(file).decode()
    except (OSError, UnicodeDecodeError) as ex:
        raise Invalid(f"{file} can't be read: {ex.strerror if isinstance(ex, OSError) else ex}.") from ex
    count = session.client.log.cosign(note)
    session.output.line({"cosignatures": count}, f"{count} cosignatures are accepted.")


@log_app.command(epilog="Example: rioni log key")
@connected
def key(session: BrokerSession) -> None:
    """Show the verifier key of checkpoints."""
    found = session.client.log.key()
    session.output.line({"verifier": found}, found)


@log_app.command(epilog="Example: rioni log keys")
@connected
def keys(session: BrokerSession) -> None:
    """Show all verifier keys that there were, in their order.

    Each is [signed by the one before](reference/transparency-log.md#rotation-of-the-key).
    """
    session.output.items(session.client.log.keys(), {"verifier": "verifier", "signature": "signature"})


@log_app.command(epilog="Example: rioni log inclusion 4711")
@connected
def inclusion(
    session: BrokerSession,
    position: Position,
    *,
    size: Annotated[int | None, typer.Option(help="Number of entries that the log had.", min=1)] = None,
) -> None:
    """Show the proof that an entry is in the log: hashes in the order of RFC 9162."""
    session.output.item(session.client.log.inclusion(position, size=size))


@log_app.command(epilog="Example: rioni log consistency 4711")
@connected
def consistency(
    session: BrokerSession,
    first: Annotated[int, typer.Argument(help="Entries of the earlier log.", min=1)],
    *,
    second: Annotated[int | None, typer.Option(help="Entries of the later one; by default all.", min=1)] = None,
) -> None:
    """Show the proof that the log begins with an earlier one."""
    session.output.item(session.client.log.consistency(first, second=second))


@log_app.command(
    epilog="Example: rioni log tile 0 000.p/12 --output tile\n\nExample: rioni log tile entries 000 --output entries"
)
@connected
def tile(
    session: BrokerSession,
    level: Annotated[str, typer.Argument(help="Level of the tile, or `entries`.")],
    rest: Annotated[str, typer.Argument(help="Number and width, such as `x001/x234/067` or `000.p/12`.")],
    *,
    output: Annotated[Path | None, typer.Option(help="File for its bytes.", metavar="FILE")] = None,
) -> None:
    """Fetch a tile of the Merkle tree, or a bundle of entries.

    In base64, or as a file: [tiles](reference/transparency-log.md#tiles).
    """
    content = session.client.log.tile(level, rest)
    if output is None:
        encoded = base64.b64encode(content).decode()
        session.output.line({"level": level, "rest": rest, "content": encoded}, encoded)
        return
    write_file(output, content)
    session.output.line({"file": str(output), "bytes": len(content)}, f"{len(content):,} bytes are in {output}.")


# --- The command of witnesses, who watch that the log of a broker is only extended ---

app = typer.Typer()


@app.command(epilog="Example: rioni witness --url https://broker.example.org --state broker.witness --every 600")
@connected
def witness(
    session: BrokerSession,
    *,
    state: Annotated[Path, typer.Option(help="File with the last checkpoint that was seen; made if missing.")],
    key: Annotated[
        Path | None,
        typer.Option(help="PEM file with the key of the witness; made if missing, by default next to the state."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the key of the witness, without spaces.")] = "witness",
    log_key: Annotated[
        str | None, typer.Option(help="Verifier key of the log; by default the one that the broker names at first.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(help="Repeat at this interval.", min=1, max=SECONDS_MAX, metavar="SECONDS")
    ] = None,
) -> None:
    """Check that the log of a broker extends the one seen before, and cosign it; exit code 1 if it does not.

    Fetches the [checkpoint](reference/transparency-log.md#checkpoints) of the broker, checks that it extends the one in
    the file `--state`, cosigns it, and gives the cosignature to the broker; exit code 1 if the log was cut, changed or
    exchanged. `--every` repeats that. At the first time the verifier key of the witness is printed that the broker
    needs (setting `log_witnesses`). Without `--log-key` the key that the broker names at the first time is kept in the
    state; a key that the known one has signed takes its place.
    """
    from rioni.cli.broker.witnessing import ForkedLog
    from rioni.cli.broker.witnessing import witness as check
    from rioni.client import ClientError
    from rioni.domain.errors import Malformed, Unavailable
    from rioni.domain.transparency.checkpoint import COSIGNATURE, parse_verifier, verifier_of
    from rioni.files.signing_key import load_key

    if log_key is not None:
        parse_verifier(log_key)
    private = load_key(key or state.with_name(f"{state.name}.key"))
    if not state.exists():
        session.output.note(f"This witness is {verifier_of(name, private, COSIGNATURE)}")
    while True:
        try:
            seen = check(session.client, state, name, private, log_key)
        except ForkedLog as ex:
            say(f"{ex} Nothing was cosigned.", err=True)
            raise typer.Exit(FOUND) from ex
        except (Unavailable, Malformed, ClientError) as ex:
            if every is None:
                raise
            session.output.note(f"{as_sentence(str(ex))} It is tried again in {every:g} seconds.")
            time.sleep(every)
            continue
        _report(session.output, seen)
        if every is None:
            return
        time.sleep(every)


def _report(output: Output, seen: "Seen") -> None:
    changed = ""
    if seen.new_key:
        changed = f"The key of the log was changed, and signed by the one before: {seen.new_key}\n"
    grown = f"extends the {seen.before} that were seen before" if seen.before else "is seen for the first time"
    accepted = "" if seen.accepted else "; the broker does not know this witness (setting log_witnesses)"
    size = seen.checkpoint.size
    output.line(
        {"size": size, "before": seen.before, "accepted": seen.accepted, "new_key": seen.new_key},
        f"{changed}The log of {size} entries {grown}, and is cosigned{accepted}.",
    )
