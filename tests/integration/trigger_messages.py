"""What the triggers of a table tell, heard by a session that listens to their channel.

Not the sidecar's own way to listen; a plain one, to see the messages themselves.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from service.connectors.postgres.triggers import trigger_sql
from tools.processes.postgres_server import Database

CHANNEL = "Changes"
_END = "end_of_test"


@dataclass(frozen=True, slots=True)
class TriggerMessages:
    """All messages since the session began."""

    session: psycopg.Connection[Any]

    def payloads(self) -> list[str]:
        """What was told by now, in its order, each once."""
        self.session.execute(f"NOTIFY {_END}".encode())  # stands behind all that was committed
        told: list[str] = []
        for message in self.session.notifies():
            if message.channel == _END:
                break
            told.append(message.payload)
        return told

    def keys(self) -> list[list[Any]]:
        """The keys of all messages, sorted; fails if one tells of no keys."""
        return sorted(key for payload in self.payloads() for key in json.loads(payload)["k"])


def make_triggers(database: Database, table: str, key: Sequence[str]) -> None:
    """Run the script for this table."""
    with psycopg.connect(database.dsn(), autocommit=True) as session:
        session.execute(trigger_sql(table, key, channel=CHANNEL).encode())


@contextmanager
def listening(database: Database) -> Iterator[TriggerMessages]:
    """Listen from now on."""
    with psycopg.connect(database.dsn(), autocommit=True) as session:
        session.execute(f'LISTEN "{CHANNEL}"; LISTEN {_END}'.encode())
        yield TriggerMessages(session)
