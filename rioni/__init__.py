"""Rioni: an event broker that serves the Nakadi API, event-sourced."""

__version__ = "0.1.1"
