"""The entry of the `rioni` command: patches the standard library for gevent where the server runs, and only there."""

import os
import sys


# NOTE: `spark-submit` runs this file as a script, in whose folder `http` is a package of ours.
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would import `http`
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]  # noqa: PTH100


def main() -> None:
    """Run the command line; does not return."""
    # NOTE: everything that is imported from here on must see the patched modules. The other commands stay unpatched:
    # Spark and gevent do not go together.
    if next((word for word in sys.argv[1:] if not word.startswith("-")), None) == "serve":
        from rioni.greenlets import patch  # noqa: PLC0415 - only the server pays for it

        patch()
    from rioni.cli import app  # noqa: PLC0415 - after patching

    app.main()


if __name__ == "__main__":
    main()
