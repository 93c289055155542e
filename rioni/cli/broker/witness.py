"""The command of witnesses, who watch that the log of a broker is only extended."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rioni.cli.connections.servers import server
from rioni.cli.connections.session import Session, connected
from rioni.cli.options import SECONDS_MAX
from rioni.cli.terminal.exit_codes import FOUND
from rioni.cli.terminal.output import Output, say


if TYPE_CHECKING:
    from rioni.cli.broker.witnessing import Seen

app = typer.Typer()


@app.command(epilog="Example: rioni witness --url https://broker.example.org --state broker.witness --every 600")
@connected
def witness(
    session: Session,
    *,
    state: Annotated[Path, typer.Option(help="File with the last checkpoint that was seen; made if missing.")],
    key: Annotated[
        Path | None,
        typer.Option(help="PEM file with the key of the witness; made if missing, by default beside the state."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the key of the witness, without spaces.")] = "witness",
    log_key: Annotated[
        str | None, typer.Option(help="Verifier key of the log; by default the one that the broker names at first.")
    ] = None,
    every: Annotated[
        float | None, typer.Option(help="Repeat after so many seconds.", min=1, max=SECONDS_MAX, metavar="SECONDS")
    ] = None,
) -> None:
    """Check that the log of a broker extends what was seen before, and cosign it; exit code 1 if it does not.

    Fetches the [checkpoint](reference/transparency-log.md#checkpoints) of the broker, checks that it extends the one in
    the file `--state`, cosigns it, and gives the cosignature to the broker; exit code 1 if the log was cut, changed or
    exchanged. `--every` repeats that. At the first time the verifier key of the witness is printed that the broker
    needs (setting `log_witnesses`). Without `--log-key` the key that the broker names at the first time is kept in the
    state; a key that the known one has signed takes its place.
    """
    from rioni.cli.broker.witnessing import ForkedLog
    from rioni.cli.broker.witnessing import witness as check
    from rioni.domain.errors import Malformed, Unavailable
    from rioni.domain.transparency.signed_note import COSIGNATURE, parse_verifier, verifier_of
    from rioni.operations.checkpoints import witness_key

    if log_key is not None:
        parse_verifier(log_key)
    private = witness_key(key or state.with_name(f"{state.name}.key"))
    if not state.exists():
        session.output.note(f"This witness is {verifier_of(name, private, COSIGNATURE)}")
    while True:
        try:
            seen = check(server(session.connection), state, name, private, log_key)
        except ForkedLog as ex:
            say(f"{ex} Nothing was cosigned.", err=True)
            raise typer.Exit(FOUND) from ex
        except (Unavailable, Malformed) as ex:
            if every is None:
                raise
            session.output.note(f"{ex} It is tried again in {every:g} seconds.")
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
