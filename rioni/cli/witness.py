"""The command of witnesses, who watch that the log of a broker is only extended."""

import time
from pathlib import Path
from typing import Annotated

import typer

from rioni.cli.options import DEFAULT_URL, FOUND, CaCertificate, Token, Url


app = typer.Typer()


@app.command(epilog="Example: rioni witness --url https://broker.example.org --state broker.witness --every 600")
def witness(
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
    every: Annotated[float | None, typer.Option(help="Repeat after so many seconds.", min=1, metavar="SECONDS")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca_certificate: CaCertificate = None,
) -> None:
    """Check that the log of a broker extends what was seen before, and cosign it; exit code 1 if it does not."""
    from rioni.bootstrap.checkpoint_operations import witness_key
    from rioni.domain.errors import Malformed, Unavailable
    from rioni.domain.transparency.signed_note import COSIGNATURE, verifier_of
    from rioni.tools.load_client import Server
    from rioni.tools.witness import ForkedLog
    from rioni.tools.witness import witness as check

    private = witness_key(key or state.with_name(f"{state.name}.key"))
    if not state.exists():
        typer.echo(f"This witness is {verifier_of(name, private, COSIGNATURE)}")
    while True:
        try:
            seen = check(Server(url, token, ca_certificate), state, name, private, log_key)
        except ForkedLog as ex:
            typer.echo(f"{ex} Nothing was cosigned.", err=True)
            raise typer.Exit(FOUND) from ex
        except (Unavailable, Malformed) as ex:
            if every is None:
                raise
            typer.echo(f"{ex} It is tried again in {every:g} seconds.", err=True)
            time.sleep(every)
            continue
        if seen.new_key:
            typer.echo(f"The key of the log was changed, and signed by the one before: {seen.new_key}")
        grown = f"extends the {seen.before} that were seen before" if seen.before else "is seen for the first time"
        accepted = "" if seen.accepted else "; the broker does not know this witness (setting log_witnesses)"
        typer.echo(f"The log of {seen.checkpoint.size} entries {grown}, and is cosigned{accepted}.")
        if every is None:
            return
        time.sleep(every)
