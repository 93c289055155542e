"""Names of environment variables that commands read and that are no settings of a broker."""

URL = "RIONI_URL"
TOKEN = "RIONI_TOKEN"  # noqa: S105 - its name
CONTEXT = "RIONI_CONTEXT"
CONTEXTS = "RIONI_CONTEXTS"

OF_CLIENTS = frozenset({URL, TOKEN, CONTEXT, CONTEXTS})
"""The variables by which a client finds a broker and authenticates; the broker itself needs none."""
