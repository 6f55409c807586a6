"""Faults of the freshness audit; each returns whether it had an effect.

After a fault everything runs again. `audit` judges the answers.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager

import numpy as np
import psycopg

from tools.freshness.connections import StreamConnection
from tools.freshness.feeds import ForeignMessage, feed_of
from tools.freshness.table import EMPTY_AND_FILL, KEYS, NAME, StaleEntry, versions_in
from tools.freshness.workers import BULK_KEYS, UPDATE
from tools.freshness.world import AuditPlan, FreshnessWorld
from tools.processes.until import soon, until

Chance = random.Random
Fault = Callable[[FreshnessWorld, Chance], bool]  # returns whether it had an effect

_BACK_WITHIN_S = 90.0
_CHANGES = 20  # transactions, some of whose rows are cached
_STALLED_AFTER_S = 11.0  # feeds stall after ten
_POOL, _LISTENING = "sidelook", "sidelook listen"  # application names of sessions
_FIRST_OF_POOL = f"application_name\0{_POOL}\0".encode()  # in the first message
_FAILED_SPLITS = "sidelook_dimension_split_failures_total"


def end_listening(world: FreshnessWorld, _: Chance) -> bool:
    """The server ends all listening sessions: notifications are lost in between."""
    sessions = f"""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = '{_LISTENING}'"""
    with _rising(world, _FAILED_SPLITS) as has_risen:
        return bool(world.database.query(sessions)) and has_risen()


def cut_network(world: FreshnessWorld, _: Chance) -> bool:
    """All connections to the server are reset."""
    return world.network.cut() > 0


def freeze_network(world: FreshnessWorld, chance: Chance) -> bool:
    """The network to the server stalls for a while."""
    world.network.hold()
    try:
        time.sleep(chance.uniform(0.2, 1.5))  # the fault itself
        return soon(lambda: world.network.held_chunks > 0)
    finally:
        world.network.release()


def delay_answers(world: FreshnessWorld, chance: Chance) -> bool:
    """Rows arrive that were read before the sidecar received their changes."""
    with _rising(world, "sidelook_invalidations_total") as has_risen:
        world.network.hold_answers(_FIRST_OF_POOL)
        try:
            time.sleep(chance.uniform(0.2, 1.0))  # the fault itself
            return has_risen() and soon(lambda: world.network.held_chunks > 0)
        finally:
            world.network.release()


def freeze_sidecar(world: FreshnessWorld, chance: Chance) -> bool:
    """The sidecar is stopped for a second, while rows change."""
    before = world.commits
    os.kill(world.sidecar_pid, signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(0.5, 1.5))  # the fault itself
        return soon(lambda: world.is_looking_up and world.commits > before)
    finally:
        os.kill(world.sidecar_pid, signal.SIGCONT)


def outlive_lease(world: FreshnessWorld, _: Chance) -> bool:
    """The sidecar is stopped for longer than its leases: its rows must not be read meanwhile."""
    name, keys, before = world.dimensions[0], np.arange(BULK_KEYS), world.commits
    with closing(StreamConnection(world.connection, name)) as stream:
        stream.bulk(keys)  # so that they are cached
        os.kill(world.sidecar_pid, signal.SIGSTOP)
        try:
            time.sleep(1.0)  # the fault itself
            has_struck = soon(lambda: world.commits > before + _CHANGES)
            table = versions_in(world.database)[keys]
            found = stream.without_sidecar(keys)
        finally:
            os.kill(world.sidecar_pid, signal.SIGCONT)
    for at in np.flatnonzero((found.versions >= 0) & (found.versions != table)).tolist():
        versions = (int(found.versions[at]), int(table[at]))
        world.outlived.append(StaleEntry(name, at, str(found.outcomes[at]), *versions))
    return has_struck


def lock_table(world: FreshnessWorld, _: Chance) -> bool:
    """Queries wait for a lock."""
    waiting = f"""SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE NOT granted AND application_name = '{_POOL}'"""
    with world.database.locked(NAME):
        time.sleep(0.2)  # the fault itself
        return soon(lambda: world.database.query(waiting))


def commit_late(world: FreshnessWorld, chance: Chance) -> bool:
    """A transaction that changed rows commits after later transactions."""
    keys = chance.sample(range(KEYS), 20)
    with psycopg.connect(world.database.dsn()) as connection:
        changed = connection.execute(UPDATE.encode(), [keys]).fetchall()
        before = world.commits
        time.sleep(chance.uniform(0.2, 1.0))  # the fault itself
        has_struck = len(changed) > 0 and soon(lambda: world.commits > before)
    world.replaced.note([row[0] for row in changed], time.monotonic())
    return has_struck


def hold_snapshot(world: FreshnessWorld, _: Chance) -> bool:
    """An idle transaction holds the oldest snapshot back."""
    with psycopg.connect(world.database.dsn()) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        time.sleep(1.0)  # the fault itself
        ((behind,),) = world.database.query(
            """SELECT pg_snapshot_xmax(now)::text::int8 - pg_snapshot_xmin(now)::text::int8
               FROM pg_current_snapshot() AS now"""
        )
    return int(behind) > 1


def empty_table(world: FreshnessWorld, _: Chance) -> bool:
    """The table is truncated and filled in one transaction."""
    with _rising(world, "sidelook_invalidations_total") as has_risen:
        try:
            world.database.execute(EMPTY_AND_FILL)
        except psycopg.Error:  # a deadlock with a writer
            return False
        return has_risen()


def change_all(world: FreshnessWorld, _: Chance) -> bool:
    """One statement changes half of the table."""
    with _rising(world, "sidelook_invalidations_total") as has_risen:
        try:
            world.database.execute(
                f"""UPDATE {NAME} SET version = nextval('versions'), payload = 'v'
                    || currval('versions') WHERE id % 2 = 0 AND id < {KEYS}"""
            )
        except psycopg.Error:  # as above
            return False
        return has_risen()


def freeze_standby(world: FreshnessWorld, chance: Chance) -> bool:
    """Commits wait for the standby: the changelog has them before they are visible."""
    assert world.standby is not None
    ((pid,),) = world.standby.query("SELECT pid FROM pg_stat_wal_receiver")
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with _rising(world, "sidelook_fenced_keys_total") as has_risen:
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(0.3, 0.8))  # the fault itself
            is_early = soon(lambda: world.database.query(waiting))
            return is_early and (has_risen() or not world.plan.has_fence)
        finally:
            os.kill(pid, signal.SIGCONT)


def crash_server(world: FreshnessWorld, _: Chance) -> bool:
    """The server crashes and recovers."""
    lost = sum(each.failures for each in world.writers)
    world.server.crash()
    try:
        until(lambda: sum(each.failures for each in world.writers) > lost)
    finally:
        world.server.start()
    return True


def freeze_broker(world: FreshnessWorld, _: Chance) -> bool:
    """The broker stalls until the feed counts as stalled."""
    world.changelog.broker.freeze()
    try:
        return soon(lambda: not world.are_live(), within_s=2 * _STALLED_AFTER_S)
    finally:
        world.changelog.broker.thaw()


def kill_broker(world: FreshnessWorld, _: Chance) -> bool:
    """The broker is killed, and starts again with its data."""
    before = world.commits
    world.changelog.broker.kill()
    time.sleep(1.0)  # the fault itself
    has_struck = soon(lambda: world.commits > before)
    world.changelog.broker.start()
    return has_struck


def write_nonsense(world: FreshnessWorld, _: Chance) -> bool:
    """A message that cannot be decoded: any row may have changed."""
    with _rising_nonsense(world) as has_risen:
        world.changelog.write(ForeignMessage(b"?"))
        return has_risen()


def forget_changes(world: FreshnessWorld, _: Chance) -> bool:
    """The topic deletes records that the sidecar has not read yet."""
    with _rising_lines(world, "changelog.restarted") as has_risen:
        os.kill(world.sidecar_pid, signal.SIGSTOP)
        try:
            time.sleep(1.0)  # the fault itself: changes are written meanwhile
            world.changelog.forget()
        finally:
            os.kill(world.sidecar_pid, signal.SIGCONT)
        return has_risen()


def kill_connector(world: FreshnessWorld, _: Chance) -> bool:
    """The connector is killed; the next one continues at or before its position."""
    before = world.commits
    world.changelog.connector.kill()
    until(lambda: not world.changelog.is_connected(), within_s=_BACK_WITHIN_S)
    world.changelog.stop_connector()
    world.changelog.start_connector()
    return world.commits > before


def freeze_connector(world: FreshnessWorld, chance: Chance) -> bool:
    """The connector stalls: changes are late."""
    world.changelog.connector.freeze()
    try:
        time.sleep(0.2)  # for what it has already sent
        before, ends = world.commits, world.changelog.end_offsets()
        time.sleep(chance.uniform(1.0, 3.0))  # the fault itself
        return world.commits > before and world.changelog.end_offsets() == ends
    finally:
        world.changelog.connector.thaw()


_COMMON: Mapping[Fault, int] = {  # how often in one round
    cut_network: 1,
    freeze_network: 2,
    delay_answers: 3,
    freeze_sidecar: 2,
    outlive_lease: 2,
    lock_table: 2,
    commit_late: 3,
    hold_snapshot: 1,
    empty_table: 1,
    change_all: 1,
    crash_server: 1,
}
_OF_FEED: Mapping[str, Mapping[Fault, int]] = {
    "notifications": {end_listening: 3},
    "changelog": {
        freeze_broker: 1,
        kill_broker: 1,
        kill_connector: 1,
        freeze_connector: 2,
        write_nonsense: 1,
        forget_changes: 1,
    },
}


def faults_of(plan: AuditPlan) -> list[Fault]:
    """The faults of one round, unordered."""
    chosen = {**_COMMON, **_OF_FEED[plan.feed]}
    if plan.has_standby:
        chosen[freeze_standby] = 6
    return [fault for fault, times in chosen.items() for _ in range(times)]


def shuffled_rounds(plan: AuditPlan, chance: Chance, *, size: int) -> Iterator[Sequence[Fault]]:
    """Endless rounds of faults in random order, `size` at a time."""
    script: list[Fault] = []
    while True:
        while len(script) < size:
            more = faults_of(plan)
            chance.shuffle(more)
            script += more
        yield script[:size]
        script = script[size:]


def _rising(world: FreshnessWorld, name: str) -> AbstractContextManager[Callable[[], bool]]:
    # Whether a metric of the sidecar rises from its value at the start.
    return _growing(lambda: world.figures()[name])


def _rising_lines(world: FreshnessWorld, event: str) -> AbstractContextManager[Callable[[], bool]]:
    # Whether the sidecar logs an event after the start.
    return _growing(lambda: world.log.read_text().count(event))


def _rising_nonsense(world: FreshnessWorld) -> AbstractContextManager[Callable[[], bool]]:
    # Whether the sidecar reads an undecodable message after the start.
    def count() -> int:
        unused = [feed_of(world.sidecar, name)["unused_messages"] for name in world.dimensions]
        return sum(each.get("undecodable", 0) for each in unused)

    return _growing(count)


@contextmanager
def _growing(count: Callable[[], float]) -> Iterator[Callable[[], bool]]:
    before = count()
    yield lambda: soon(lambda: count() > before)
