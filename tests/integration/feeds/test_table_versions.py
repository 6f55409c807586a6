"""Followed tables whose rows, or whose publications, change while a sidecar runs."""

from collections.abc import Mapping
from typing import Any

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from tests.integration.feeds.followed_table import LONG, UNPROVED, SourceTable, following
from tools.processes.postgres_server import Database
from tools.processes.until import until

FULL = {"mode": "full"}


def source_table(database: Database, kafka: KafkaBroker) -> SourceTable:
    """A new table with its topic."""
    table = SourceTable(f"{database.name}_versions", database, kafka.address)
    table.create()
    return table


@pytest.mark.parametrize("cache", [LONG, FULL])
def test_renamed_label_is_served_soon(
    database: Database, kafka: KafkaBroker, cache: Mapping[str, Any]
) -> None:
    """After an enum label is renamed, no lookup gets the former one for longer than a check."""
    table = source_table(database, kafka)
    database.execute(
        "CREATE TYPE mood AS ENUM ('one', 'two', 'three')",
        f"ALTER TABLE {table.name} ALTER name TYPE mood USING name::mood",
    )
    with following([table], {table.name: table.dimension(cache=cache)}) as (followed,):
        followed.wait_until_live()
        followed.keep(1, 2)
        database.execute("ALTER TYPE mood RENAME VALUE 'one' TO 'glad'")
        until(lambda: followed.look_up(1)[0][1] == "glad")
        followed.keep(1, 2)
        names = [name for _, name in followed.look_up(1, 2)]

    assert names == ["glad", "two"]


def test_changed_type_is_described_soon(database: Database, kafka: KafkaBroker) -> None:
    """A type that changes without a new file is described at the next check of the table."""
    table = source_table(database, kafka)
    database.execute(
        f"ALTER TABLE {table.name} ALTER name TYPE timestamp USING '2026-01-02 03:04:05'"
    )
    with following([table], {table.name: table.dimension(cache=FULL)}) as (followed,):
        followed.wait_until_live()
        followed.keep(1)
        (former,) = followed.look_up(1)
        database.execute(
            "SET timezone = 'UTC'", f"ALTER TABLE {table.name} ALTER name TYPE timestamptz"
        )
        until(lambda: followed.look_up(1)[0][1] not in {None, former[1]})
        (described,) = followed.look_up(1)
        log = followed.log

    assert described[1] == "2026-01-02T03:04:05Z"
    assert "dimension.schema_changed" in log


@pytest.mark.parametrize(
    "statement",
    ["ALTER name TYPE text USING 'new'", "DROP name, ADD name text NOT NULL DEFAULT 'new'"],
)
def test_late_event_restores_no_former_version(
    database: Database, kafka: KafkaBroker, statement: str
) -> None:
    """An event from before ALTER TABLE that arrives after it drops its row, and replaces none."""
    table = source_table(database, kafka)
    before_start = table.rename(1, "uno")
    with following([table], {table.name: table.dimension(cache=UNPROVED)}) as (followed,):
        followed.wait_until_live()
        followed.keep(1, 2, 3)
        before_change = table.rename(2, "dos")
        database.execute(f"ALTER TABLE {table.name} {statement}")
        until(lambda: followed.look_up(1, 2, 3) == [("hit", "new")] * 3)
        followed.publish(before_start, before_change, table.rename(3, "tres"))
        after = followed.look_up(1, 2, 3)

    assert after == [("fetched", "new"), ("fetched", "new"), ("hit", "tres")]


@pytest.mark.parametrize("cache", [LONG, FULL])
def test_table_is_refused_while_unpublished(
    database: Database, kafka: KafkaBroker, cache: Mapping[str, Any]
) -> None:
    """A table that leaves its publication is refused with the remedy, and then starts empty."""
    table = source_table(database, kafka)
    database.execute(f"CREATE PUBLICATION p FOR TABLE {table.name}")
    with following([table], {table.name: table.dimension(cache=cache)}) as (followed,):
        followed.wait_until_live()
        followed.keep(1, 2)
        database.execute("ALTER PUBLICATION p SET (publish = 'insert, update')")
        path = f"/v1/dimensions/{table.name}/lookup"
        until(lambda: followed.sidecar.post(path, {"keys": [1]}).status != 200)
        refusal = followed.sidecar.post(path, {"keys": [1]}).text
        table.commit(f"DELETE FROM {table.name} WHERE id = 1")  # no event
        database.execute("ALTER PUBLICATION p SET (publish = 'insert, update, delete')")
        until(lambda: followed.sidecar.post(path, {"keys": [1]}).status == 200)
        answers = followed.look_up(1, 2)

    assert 'publication \\"p\\" does not report each delete' in refusal
    assert [(outcome == "missing", name) for outcome, name in answers] == [
        (True, None),
        (False, "two"),
    ]
