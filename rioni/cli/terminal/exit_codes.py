"""Exit codes of all commands; 0 is success."""

FOUND = 1
"""Findings or differences were asked for and found."""
NOTHING_FOUND = 1
"""What was looked for is not there, as with grep."""
REFUSED = 1
"""The command did its work, but the broker refused some of it."""
FAILED = 2
"""The command could not do its work."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it."""
BROKEN_PIPE = 141
"""The program that reads the output has ended, as shells count it."""
