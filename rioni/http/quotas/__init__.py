"""Quotas of clients: how many changes, events and bytes each may send in a time."""
