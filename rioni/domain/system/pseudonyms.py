"""Pseudonyms of clients, for reports with a wider audience."""

from hashlib import sha256


def pseudonymize(salt: str, name: str) -> str:
    """The hexadecimal SHA-256 of salt and name.

    Source: reference system-event-types#audit-log, system-event-types#kpi-event-types.
    """
    return sha256((salt + name).encode()).hexdigest()
