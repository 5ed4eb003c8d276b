"""What a deleted connector leaves in the database, and how to drop it

Slot and publication stay, so that the connector can be made again without a gap. A slot that nobody reads any more
keeps the server's log until the disk is full; whoever deletes for good must hear of it.
"""

from psycopg import sql

from tidemill.connect.plugins.postgres.config import PostgresConfig


def left_behind(config: PostgresConfig) -> list[str]:
    """Return a sentence for each thing that stays, with the statement that drops it."""
    drop = sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(config.publication_name)).as_string(None)
    left = [] if config.slot_drop_on_stop else [
        f"the replication slot {config.slot_name} makes the server of database {config.dbname} keep its log; "
        f"if no other connector uses it, drop it with SELECT pg_drop_replication_slot('{config.slot_name}')"
    ]  # fmt: skip
    publication = f"the publication {config.publication_name} in database {config.dbname}"
    return [*left, f"{publication}; if nobody else uses it, drop it with {drop}"]
