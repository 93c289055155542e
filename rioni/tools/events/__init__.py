"""Reads, publishes and copies events over HTTP, by any server of the API: what commands of the command line do."""
