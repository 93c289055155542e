"""Names and removal of a rebuild's shadow tables."""

from sqlalchemy import Connection, MetaData, column, delete, inspect, table
from sqlalchemy.schema import DropTable

from rioni.projections.projector import TRACKING_NAME
from rioni.projections.tables import READ_MODELS


SHADOW_SUFFIX = "__new"
_TRACKING = table("tracking", column("name"))


def drop_shadow_tables(connection: Connection) -> list[str]:
    """Remove all of them that there are, in the caller's transaction; the live tables are not touched.

    Only for the holder of the rebuild lock.

    Returns:
        The names of the tables that were removed.
    """
    present = set(inspect(connection).get_table_names())
    dropped = [each for each in READ_MODELS.sorted_tables if each.name + SHADOW_SUFFIX in present]
    for each in dropped:
        connection.execute(DropTable(each.to_metadata(MetaData(), name=each.name + SHADOW_SUFFIX)))
    connection.execute(delete(_TRACKING).where(_TRACKING.c.name == TRACKING_NAME + SHADOW_SUFFIX))
    return [each.name + SHADOW_SUFFIX for each in dropped]
