"""Locked tables and rejected keys fail only the lookups that need them."""

import asyncio
import random
from pathlib import Path

from tests.integration.protection.callers import (
    Answer,
    callers_of,
    put_customers,
)
from tests.integration.sidecars import postgres_sidecar, started
from tools.processes.postgres_server import IS_BLOCKED, Database, PostgresServer
from tools.processes.sidecar_process import SidecarFigures

QUICK_MS = 5_000  # shorter than the wait for the locked table
SLOW_MS = 6_000
CALLERS = 100
QUICK_LOOKUPS = 20
UNCACHED = {"cache": {"mode": "none"}}
TABLES = ("customers", "orders")

# The server rejects a query with a character that LATIN1 lacks (SQLSTATE 22P05).
LATIN1 = "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
WORDS = 120_000
WORD_KEYS = 100_000
PATIENCE_MS = 60_000
POISONED_SHARE = 100  # one key in a hundred
REQUEST_KEYS = 5_000
CONCURRENT_REQUESTS = 4


async def test_locked_table_hurts_only_its_dimension(folder: Path, database: Database) -> None:
    """While lookups in a locked table wait for their deadline, another table answers."""
    for table in TABLES:
        put_customers(database, table=table)
    sidecar = postgres_sidecar(folder, database.dsn(), dict.fromkeys(TABLES, UNCACHED))
    async with started(sidecar), callers_of(folder, timeout_ms=QUICK_MS) as callers:
        with database.locked("orders"):
            slow = [
                asyncio.ensure_future(callers.look_up("orders", [key], timeout_ms=SLOW_MS))
                for key in range(1, CALLERS + 1)
            ]
            await database.wait_for(IS_BLOCKED)
            keys = range(1, QUICK_LOOKUPS + 1)
            quick = [await callers.look_up("customers", [key]) for key in keys]
            were_waiting = not any(task.done() for task in slow)
            ended = await asyncio.gather(*slow)

        await callers.look_up_until("fetched", "orders", 1)
        assert were_waiting
        assert {outcome for answer in quick for outcome in answer.outcomes} == {"fetched"}
        assert {outcome for answer in ended for outcome in answer.outcomes} <= {"timeout", "error"}
        assert [fault for answer in (*quick, *ended) for fault in answer.faults()] == []
        await asyncio.to_thread(SidecarFigures(sidecar).seconds_until_at_rest)


def put_words(server: PostgresServer) -> Database:
    """The table `words`, whose keys from `ä 1` to `ä 120000` have a row."""
    database = server.new_database(LATIN1)
    database.execute(
        "CREATE TABLE words (id text PRIMARY KEY, name text NOT NULL)",
        "INSERT INTO words SELECT chr(228) || ' ' || id, 'word ' || id"
        f" FROM generate_series(1, {WORDS}) AS id",
        "ANALYZE words",
    )
    return database


def _expected(key: str) -> str:
    letter, number = key.split()
    if letter == "漢":
        return "error key_rejected"
    return f"fetched word {number}" if int(number) <= WORDS else "missing"


async def test_only_poison_keys_fail(folder: Path, postgres_server: PostgresServer) -> None:
    """Of 100,000 keys, exactly the 1,000 that the server rejects are errors (H7)."""
    chosen = random.Random(20_131)  # noqa: S311
    numbers = chosen.sample(range(1, WORDS * 10 // 9), WORD_KEYS)
    poisoned = set(chosen.sample(range(WORD_KEYS), WORD_KEYS // POISONED_SHARE))
    keys = [f"{'漢' if at in poisoned else 'ä'} {number}" for at, number in enumerate(numbers)]
    slots = asyncio.Semaphore(CONCURRENT_REQUESTS)
    sidecar = postgres_sidecar(folder, put_words(postgres_server).dsn(), {"words": {}})
    async with started(sidecar), callers_of(folder, timeout_ms=PATIENCE_MS) as callers:

        async def look_up(start: int) -> Answer:
            async with slots:
                return await callers.look_up("words", keys[start : start + REQUEST_KEYS])

        starts = range(0, WORD_KEYS, REQUEST_KEYS)
        answers = await asyncio.gather(*(look_up(start) for start in starts))

    found = [
        f"{outcome} {row['name'] if row else answer.errors.get(str(at), {}).get('code', '')}"
        for answer in answers
        for at, (outcome, row) in enumerate(zip(answer.outcomes, answer.rows, strict=True))
    ]
    pairs = zip(keys, found, strict=True)
    wrong = [f"{key}: {word}" for key, word in pairs if word.strip() != _expected(key)]
    assert wrong[:20] == []
