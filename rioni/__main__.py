"""The entry of the `rioni` command: patches the standard library for gevent where the server runs, and only there."""

import os
import signal
import sys


# NOTE: `spark-submit` runs this file as a script, in whose folder `http` is a package of ours.
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would import `http`
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]  # noqa: PTH100


def main() -> None:
    """Run the command line; does not return."""
    serves = next((word for word in sys.argv[1:] if not word.startswith("-")), None) == "serve"
    if serves:
        # NOTE: an exception would be lost in a finalizer. Nothing is served yet, and stored data survive any end.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    from rioni.cli.terminal import ending, streams  # noqa: PLC0415 - they must not be patched

    if not serves:
        # Blocks end as with Ctrl-C: a command ends what it has started, and removes its temporary files.
        ending.when_asked_to_end(lambda number, _: sys.exit(128 + number))
    streams.prepare(serving=serves)
    # NOTE: everything that is imported from here on must see the patched modules. The other commands stay unpatched:
    # Spark and gevent do not go together.
    if serves:
        from rioni.patches.gevent import patch  # noqa: PLC0415 - only the server pays for it

        patch()
    from rioni.cli import app  # noqa: PLC0415 - after patching

    app.main()


if __name__ == "__main__":
    main()
