"""Faults of a feed that its publications, its topic or its log show: found by checks.

The bounds are those of docs/explanation/consistency.md.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from demo.embedded_kafka.shortened_log import shorten_log
from tools.freshness.feeds import PATIENCE_S, ForeignMessage
from tools.freshness.table import KEYS, NAME
from tools.freshness.world import FreshnessWorld
from tools.processes.until import until

Chance = random.Random
_CHECK_S = 5.0  # until the catalog shows a publication that changed
_LOG_CHECK_S = 10.0  # until a log that lost its end is found
_LONGEST_STOP_S = 2.0  # of a replica, whose lag must be less than the hold-off of keys, 5 s
_FOREIGN_KEYS = 200
_CUT_RECORDS = 200
_ALL = "insert, update, delete, truncate"
_FOREIGN_SOURCES: tuple[Mapping[str, str], ...] = (
    {"db": "another_database"},
    {"name": "another_server"},
    {"connector": "sqlserver"},
)


@dataclass(frozen=True, slots=True)
class FeedFault:
    """A way in which a feed is incomplete."""

    name: str
    bound_s: float  # of a wrong hit, without the delay of a complete feed
    strike: Callable[[FreshnessWorld, Chance], None]
    repair: Callable[[FreshnessWorld], None]
    ends_trust: bool = False  # for longer than a run: it is the last fault


def repair_nothing(_: FreshnessWorld) -> None:
    """The feed is complete again."""


def _alter(world: FreshnessWorld, *changes: str) -> None:
    name = world.changelog.captured.prefix
    world.database.execute(*(f"ALTER PUBLICATION {name} {change}" for change in changes))


def _omit_operation(world: FreshnessWorld, chance: Chance) -> None:
    _alter(world, f"SET (publish = 'insert, {chance.choice(('update', 'delete'))}, truncate')")


def _filter_rows(world: FreshnessWorld, chance: Chance) -> None:
    _alter(world, f"SET TABLE {NAME} WHERE (id % 2 = {chance.randrange(2)})")


def _drop_table(world: FreshnessWorld, _: Chance) -> None:
    _alter(world, f"DROP TABLE {NAME}")


def _publish_all(world: FreshnessWorld) -> None:
    _alter(world, f"SET TABLE {NAME}", f"SET (publish = '{_ALL}')")


def _write_foreign_events(world: FreshnessWorld, chance: Chance) -> None:
    source = chance.choice(_FOREIGN_SOURCES)
    keys = chance.sample(range(KEYS), _FOREIGN_KEYS)
    messages = [_foreign_event(world, key, chance.choice("cud"), other=source) for key in keys]
    world.changelog.write(*messages, _foreign_event(world, keys[0], "t", other=source))


def _foreign_event(
    world: FreshnessWorld, key: int, operation: str, *, other: Mapping[str, str]
) -> ForeignMessage:
    now_ms = int(time.time() * 1000)
    own = {"db": world.database.name, "name": world.changelog.captured.prefix}
    place = {"sequence": f'["{2**60}","{2**60}"]', "txId": 1, "snapshot": "false"}
    table = {"schema": "public", "table": NAME, "ts_ms": now_ms, "connector": "postgresql"}
    row = {"id": key, "version": key + 1, "payload": "foreign"}  # a payload that no version has
    event = {
        "before": None,
        "after": row if operation in "cu" else None,
        "op": operation,
        "ts_ms": now_ms,
        "source": {**own, **place, **table, **other},
    }
    name = None if operation == "t" else json.dumps({"id": key}).encode()
    return ForeignMessage(json.dumps(event).encode(), name)


def _cut_log(world: FreshnessWorld, _: Chance) -> None:
    """The log loses its end, which the sidecar has read, and grows again beyond it."""
    feed, topic = world.changelog, world.changelog.captured.topic
    for writer in world.writers:
        writer.pause()
    for name in world.dimensions:
        feed.wait_until_applied(world.sidecar, name)
    end = feed.end_offsets()[f"{topic}-0"]
    os.kill(world.sidecar_pid, signal.SIGSTOP)
    try:
        feed.broker.kill()
        shorten_log(feed.broker, topic, end=end - _CUT_RECORDS)
        feed.broker.start()
        for writer in world.writers:
            writer.resume()
        until(lambda: feed.end_offsets()[f"{topic}-0"] > end, within_s=PATIENCE_S)
    finally:
        os.kill(world.sidecar_pid, signal.SIGCONT)


def _delay_replica(world: FreshnessWorld, chance: Chance) -> None:
    """Events precede the rows that lookups read, whose ids are not those of the events."""
    assert world.replica is not None
    world.replica.stop()
    try:
        time.sleep(chance.uniform(0.5, _LONGEST_STOP_S))  # the fault itself
    finally:
        world.replica.resume()


OMITTED_OPERATION = FeedFault("omitted operation", _CHECK_S, _omit_operation, _publish_all)
OF_PUBLICATION = (
    OMITTED_OPERATION,
    FeedFault("row filter", _CHECK_S, _filter_rows, _publish_all),
    FeedFault("dropped table", _CHECK_S, _drop_table, _publish_all),
)
FOREIGN_EVENTS = FeedFault("foreign events", 0.0, _write_foreign_events, repair_nothing)
OF_TOPIC = (FOREIGN_EVENTS, FeedFault("cut log", _LOG_CHECK_S, _cut_log, repair_nothing))
LATE_REPLICA = FeedFault("late replica", 0.0, _delay_replica, repair_nothing)
