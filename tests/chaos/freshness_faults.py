"""What breaks while the auditor of freshness runs; each fault says whether it had an effect.

Strikes only, and leaves everything running again; what must hold is the audit's business.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg

from tests.chaos.freshness_signs import is_doubted, positions, rising, rising_lines, rising_nonsense
from tests.chaos.freshness_table import EMPTY_AND_FILL, KEYS, NAME
from tests.chaos.freshness_world import AuditPlan, FreshnessWorld
from tests.chaos.freshness_writer import UPDATE
from tests.end_to_end.until import soon, until

Chance = random.Random
Fault = Callable[[FreshnessWorld, Chance], bool]  # does it, and says whether it struck

_BACK_WITHIN_S = 90.0
_SILENT_AFTER_S = 11.0  # a feed is believed for ten
_POOL, _LISTENING = "sidelook", "sidelook listen"  # what sessions call themselves
_FIRST_OF_POOL = f"application_name\0{_POOL}\0".encode()  # in the first message
_FAILED_SPLITS = "sidelook_dimension_split_failures_total"


def end_pool(world: FreshnessWorld, _: Chance) -> bool:
    """All sessions of lookups are ended by the server."""
    return _terminate(world, _POOL) > 0


def end_listening(world: FreshnessWorld, _: Chance) -> bool:
    """All sessions that listen are ended: what is told meanwhile is lost."""
    with rising(world, _FAILED_SPLITS) as has_risen:
        return _terminate(world, _LISTENING) > 0 and has_risen()


def cut_network(world: FreshnessWorld, _: Chance) -> bool:
    """All connections to the server are reset."""
    return world.network.cut() > 0


def freeze_network(world: FreshnessWorld, chance: Chance) -> bool:
    """Nothing gets to the server or back for a while."""
    world.network.hold()
    try:
        time.sleep(chance.uniform(0.2, 1.5))  # the fault itself
        return soon(lambda: world.network.held_chunks > 0)
    finally:
        world.network.release()


def delay_answers(world: FreshnessWorld, chance: Chance) -> bool:
    """Rows arrive that were read before the sidecar heard of their changes."""
    with rising(world, "sidelook_invalidations_total") as has_risen:
        world.network.hold_answers(_FIRST_OF_POOL)
        try:
            time.sleep(chance.uniform(0.2, 1.0))  # the fault itself
            return has_risen() and soon(lambda: world.network.held_chunks > 0)
        finally:
            world.network.release()


def freeze_sidecar(world: FreshnessWorld, chance: Chance) -> bool:
    """The sidecar does nothing for a second, and changes go on."""
    before = world.commits
    os.kill(world.sidecar_pid, signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(0.5, 1.5))  # the fault itself
        return soon(lambda: world.is_asking and world.commits > before)
    finally:
        os.kill(world.sidecar_pid, signal.SIGCONT)


def lock_table(world: FreshnessWorld, _: Chance) -> bool:
    """Queries wait for a lock."""
    waiting = f"""SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE NOT granted AND application_name = '{_POOL}'"""
    with world.database.locked(NAME):
        time.sleep(0.2)  # the fault itself
        return soon(lambda: world.database.query(waiting))


def commit_late(world: FreshnessWorld, chance: Chance) -> bool:
    """A transaction has changed rows, and others that began after it are committed before it."""
    keys = chance.sample(range(KEYS), 20)
    with psycopg.connect(world.database.dsn()) as connection:
        changed = connection.execute(UPDATE.encode(), [keys]).fetchall()
        before = world.commits
        time.sleep(chance.uniform(0.2, 1.0))  # the fault itself
        has_struck = len(changed) > 0 and soon(lambda: world.commits > before)
    world.replaced.note([row[0] for row in changed], time.monotonic())
    return has_struck


def hold_snapshot(world: FreshnessWorld, _: Chance) -> bool:
    """A transaction that does nothing holds the oldest snapshot back."""
    with psycopg.connect(world.database.dsn()) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        time.sleep(1.0)  # the fault itself
        ((behind,),) = world.database.query(
            """SELECT pg_snapshot_xmax(now)::text::int8 - pg_snapshot_xmin(now)::text::int8
               FROM pg_current_snapshot() AS now"""
        )
    return int(behind) > 1


def empty_table(world: FreshnessWorld, _: Chance) -> bool:
    """The table is emptied and filled with other rows, at once."""
    with rising(world, "sidelook_invalidations_total") as has_risen:
        try:
            world.database.execute(EMPTY_AND_FILL)
        except psycopg.Error:  # a writer was in the way
            return False
        return has_risen()


def change_all(world: FreshnessWorld, _: Chance) -> bool:
    """One statement changes half of the table."""
    with rising(world, "sidelook_invalidations_total") as has_risen:
        try:
            world.database.execute(
                f"""UPDATE {NAME} SET version = nextval('versions'), payload = 'v'
                    || currval('versions') WHERE id % 2 = 0 AND id < {KEYS}"""
            )
        except psycopg.Error:  # as above
            return False
        return has_risen()


def freeze_standby(world: FreshnessWorld, chance: Chance) -> bool:
    """Commits wait for the standby: the changelog tells of them before anybody sees them."""
    assert world.standby is not None
    ((pid,),) = world.standby.query("SELECT pid FROM pg_stat_wal_receiver")
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(0.3, 0.8))  # the fault itself
        return soon(lambda: world.database.query(waiting))
    finally:
        os.kill(pid, signal.SIGCONT)


def restart_server(world: FreshnessWorld, _: Chance) -> bool:
    """The server ends all sessions, and starts anew."""
    return _restart(world, world.server.stop)


def crash_server(world: FreshnessWorld, _: Chance) -> bool:
    """The server ends at once, and recovers."""
    return _restart(world, world.server.crash)


def freeze_broker_shortly(world: FreshnessWorld, chance: Chance) -> bool:
    """The broker falls silent for less time than a feed is believed."""
    world.changelog.broker.freeze()
    try:
        time.sleep(0.2)  # till then, what it had sent already is read
        before, read = world.commits, positions(world)
        time.sleep(chance.uniform(0.5, 2.0))  # the fault itself
        return world.commits > before and positions(world) == read
    finally:
        world.changelog.broker.thaw()


def freeze_broker(world: FreshnessWorld, _: Chance) -> bool:
    """The broker falls silent until nobody believes the feed any more."""
    world.changelog.broker.freeze()
    try:
        return is_doubted(world, within_s=2 * _SILENT_AFTER_S)
    finally:
        world.changelog.broker.thaw()


def kill_broker(world: FreshnessWorld, _: Chance) -> bool:
    """The broker ends at once, and starts with the data that it had."""
    before = world.commits
    world.changelog.broker.kill()
    time.sleep(1.0)  # the fault itself
    has_struck = soon(lambda: world.commits > before)
    world.changelog.broker.start()
    return has_struck


def restart_broker(world: FreshnessWorld, _: Chance) -> bool:
    """The broker ends in good order, and starts anew."""
    before = world.commits
    world.changelog.broker.stop()
    has_struck = world.commits > before
    world.changelog.broker.start()
    return has_struck


def write_nonsense(world: FreshnessWorld, _: Chance) -> bool:
    """A message that nobody understands: any row may have changed."""
    with rising_nonsense(world) as has_risen:
        world.changelog.write(b"?")
        return has_risen()


def forget_changes(world: FreshnessWorld, _: Chance) -> bool:
    """The topic forgets what the sidecar has not read yet."""
    with rising_lines(world, "changelog.restarted") as has_risen:
        os.kill(world.sidecar_pid, signal.SIGSTOP)
        try:
            time.sleep(1.0)  # the fault itself: so much is told meanwhile
            world.changelog.forget()
        finally:
            os.kill(world.sidecar_pid, signal.SIGCONT)
        return has_risen()


def kill_connector(world: FreshnessWorld, _: Chance) -> bool:
    """The connector ends at once; its successor goes on where it was, or a bit before."""
    before = world.commits
    world.changelog.connector.kill()
    until(lambda: not world.changelog.is_connected(), within_s=_BACK_WITHIN_S)
    world.changelog.stop_connector()
    world.changelog.start_connector()
    return world.commits > before


def freeze_connector(world: FreshnessWorld, chance: Chance) -> bool:
    """Changes are late."""
    world.changelog.connector.freeze()
    try:
        time.sleep(0.2)  # till then, the broker has what was sent before
        before, ends = world.commits, world.changelog.end_offsets()
        time.sleep(chance.uniform(1.0, 3.0))  # the fault itself
        return world.commits > before and world.changelog.end_offsets() == ends
    finally:
        world.changelog.connector.thaw()


_COMMON: Mapping[Fault, int] = {  # how often in one round
    end_pool: 1,
    cut_network: 1,
    freeze_network: 2,
    delay_answers: 3,
    freeze_sidecar: 2,
    lock_table: 2,
    commit_late: 3,
    hold_snapshot: 1,
    empty_table: 1,
    change_all: 1,
    restart_server: 1,
    crash_server: 1,
}
_OF_FEED: Mapping[str, Mapping[Fault, int]] = {
    "notifications": {end_listening: 3},
    "changelog": {
        freeze_broker_shortly: 2,
        freeze_broker: 1,
        kill_broker: 1,
        restart_broker: 1,
        kill_connector: 1,
        freeze_connector: 2,
        write_nonsense: 1,
        forget_changes: 1,
    },
}


def faults_of(plan: AuditPlan) -> list[Fault]:
    """One of each, as often as it is in one round; not in order."""
    chosen = {**_COMMON, **_OF_FEED[plan.feed]}
    if plan.has_standby:
        chosen[freeze_standby] = 6
    return [fault for fault, times in chosen.items() for _ in range(times)]


def shuffled_rounds(plan: AuditPlan, chance: Chance, *, size: int) -> Iterator[Sequence[Fault]]:
    """Faults in a random order for ever, so many at a time."""
    script: list[Fault] = []
    while True:
        while len(script) < size:
            more = faults_of(plan)
            chance.shuffle(more)
            script += more
        yield script[:size]
        script = script[size:]


def _terminate(world: FreshnessWorld, name: str) -> int:
    ended = world.database.query(
        f"""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = '{name}'"""
    )
    return len(ended)


def _restart(world: FreshnessWorld, stop: Callable[[], None]) -> bool:
    lost = sum(each.failures for each in world.writers)
    stop()
    try:
        until(lambda: sum(each.failures for each in world.writers) > lost)
    finally:
        world.server.start()
    return True
