"""Messages of a table's triggers, received by a plain LISTEN session."""

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
    """The messages since the session began."""

    session: psycopg.Connection[Any]

    def payloads(self) -> list[str]:
        """The payloads up to now, in order, each returned once."""
        self.session.execute(f"NOTIFY {_END}".encode())  # follows all committed messages
        payloads: list[str] = []
        for message in self.session.notifies():
            if message.channel == _END:
                break
            payloads.append(message.payload)
        return payloads

    def keys(self) -> list[list[Any]]:
        """The sorted keys of all messages, which must all have keys."""
        return sorted(key for payload in self.payloads() for key in json.loads(payload)["k"])

    def without_transactions(self) -> list[dict[str, Any]]:
        """All messages without their transaction ids."""
        messages = [json.loads(payload) for payload in self.payloads()]
        return [{name: value for name, value in each.items() if name != "x"} for each in messages]


def make_triggers(
    database: Database, table: str, key: Sequence[str], *, is_partitioned: bool = False
) -> None:
    """Run the trigger script for this table."""
    script = trigger_sql(table, key, channel=CHANNEL, is_partitioned=is_partitioned)
    with psycopg.connect(database.dsn(), autocommit=True) as session:
        session.execute(script.encode())


@contextmanager
def listening(database: Database) -> Iterator[TriggerMessages]:
    """Listen until the end of the block."""
    with psycopg.connect(database.dsn(), autocommit=True) as session:
        session.execute(f'LISTEN "{CHANNEL}"; LISTEN {_END}'.encode())
        yield TriggerMessages(session)
