"""Subscriptions between databases of one server."""

from collections.abc import Iterator
from contextlib import contextmanager

from tools.processes.postgres_server import Database


@contextmanager
def subscribed(
    subscriber: Database, publisher: Database, table: str, *, is_running: bool = False
) -> Iterator[None]:
    """Subscribe to a table of the publisher, without a copy of its rows."""
    slot = f"slot_{subscriber.name}"
    publisher.execute(
        f"CREATE PUBLICATION rows FOR TABLE {table}",
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
    )
    source = f"host={publisher.socket_folder} user=postgres dbname={publisher.name}"
    # A server cannot create the slot of a subscription to itself.
    subscriber.execute(
        f"CREATE SUBSCRIPTION {slot} CONNECTION '{source}' PUBLICATION rows"
        f" WITH (create_slot = false, copy_data = false, enabled = {is_running})"
    )
    try:
        yield
    finally:
        if is_running:
            subscriber.execute(f"ALTER SUBSCRIPTION {slot} DISABLE")
        subscriber.execute(
            f"ALTER SUBSCRIPTION {slot} SET (slot_name = NONE)", f"DROP SUBSCRIPTION {slot}"
        )
        # A worker that ends may still hold the slot.
        ended = (
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
            f" WHERE slot_name = '{slot}' AND active"
        )
        publisher.execute(ended, f"SELECT pg_drop_replication_slot('{slot}')")
