"""Faults of a connector that neither catalog nor events show: the audit of the feed finds them.

They change rows without other events: without comparable ids, a read of a key is no proof for a
minute after its event.
"""

import math
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from service.config.refresh import LEAST_GRACE_S
from tools.freshness.connections import HttpConnection
from tools.freshness.feeds import MAX_STALENESS_S
from tools.freshness.incomplete.feed_faults import Chance, FeedFault
from tools.freshness.table import KEYS, NAME, NEVER
from tools.freshness.world import FreshnessWorld
from tools.processes.until import until

_KEYS_READ = 50  # by an audit
_QUIET_KEYS = 10_000  # that faults change, and writers do not
SETTINGS: Mapping[str, Any] = {  # of a plan
    "audit": {"every": "1s", "keys": _KEYS_READ},
    "writers": 1,
    "written_keys": KEYS - _QUIET_KEYS,
}
_LEAST_WRONG_SHARE = 0.05
_SAMPLES_S = (
    math.log(1000) / (_LEAST_WRONG_SHARE * _KEYS_READ) * 1.5
)  # audits are at most 1.5 s apart
_AUDIT_S = _SAMPLES_S + max(MAX_STALENESS_S, LEAST_GRACE_S)
_NO_PROOF_S = 60.0  # after the event of a key
_PROVED_WITHIN_S = 180.0
_STRIDE = 7  # a fault changes every 7th row
_ALTERED, _SKIPPED = 1, 2  # remainders of these keys
_PROBED_KEY = 7  # it has a row, and no such remainder

_CHOSEN = f"id < {_QUIET_KEYS} AND id %% {_STRIDE} = %s"
_UPDATE = f"""WITH new AS MATERIALIZED
        (SELECT id, version AS old, nextval('versions') AS next FROM {NAME} WHERE {{chosen}})
    UPDATE {NAME} AS t SET version = new.next, payload = 'v' || new.next
    FROM new WHERE t.id = new.id RETURNING new.old"""
_UPDATE_SHARE = _UPDATE.format(chosen=_CHOSEN)
_UPDATE_ONE = _UPDATE.format(chosen="id = %s")
_DELETE_SHARE = f"DELETE FROM {NAME} WHERE {_CHOSEN} RETURNING version"
_INSERT_ABSENT = f"""INSERT INTO {NAME} SELECT id, version, 'v' || version
    FROM (SELECT id, nextval('versions') AS version
          FROM generate_series(0, {_QUIET_KEYS - 1}) AS id) AS new
    ON CONFLICT DO NOTHING"""


def _skip_operations(world: FreshnessWorld, operation: str) -> None:
    """The connector skips insertions (c), updates (u) or deletions (d)."""
    _restart_connector(world, f"skipped.operations={operation}")
    if operation == "c":
        world.database.execute(_INSERT_ABSENT)
    else:
        _change(world, _UPDATE_SHARE if operation == "u" else _DELETE_SHARE, _SKIPPED)


def _skip_any(world: FreshnessWorld, chance: Chance) -> None:
    _skip_operations(world, chance.choice("cud"))


def _skip_deletes(world: FreshnessWorld, _: Chance) -> None:
    _skip_operations(world, "d")


def _alter_values(world: FreshnessWorld, chance: Chance) -> None:
    """The connector masks or truncates texts, whose rows a full table uses without queries."""
    for writer in world.writers:
        writer.pause()
    until(lambda: _are_event_rows_used(world), within_s=_PROVED_WITHIN_S)
    option = chance.choice(("mask.with.5.chars", "truncate.to.3.chars"))
    _restart_connector(world, f"column.{option}=public.{NAME}.payload")
    world.replaced.note([NEVER], time.monotonic())  # an altered row was right until now
    _change(world, _UPDATE_SHARE, _ALTERED)


def _alter_unproved_values(world: FreshnessWorld, _: Chance) -> None:
    _restart_connector(world, f"column.mask.with.5.chars=public.{NAME}.payload")


def _are_event_rows_used(world: FreshnessWorld) -> bool:
    """Whether the row of an event is a hit before any query."""
    _change(world, _UPDATE_ONE, _PROBED_KEY)
    for name in world.dimensions:
        world.changelog.wait_until_applied(world.sidecar, name)
    with closing(HttpConnection(world.sidecar, world.dimensions[-1])) as connection:
        return bool(connection.single(_PROBED_KEY).outcomes[0] == "hit")


def _change(world: FreshnessWorld, statement: str, chosen: int) -> None:
    versions = [version for (version,) in world.database.query(statement, [chosen])]
    world.replaced.note(versions, time.monotonic())


def _restart_connector(world: FreshnessWorld, *options: str) -> None:
    """Without changes meanwhile, which would be late."""
    for writer in world.writers:
        writer.pause()
    world.changelog.restart_connector(*options)
    for writer in world.writers:
        writer.resume()


def _report_all(world: FreshnessWorld) -> None:
    _restart_connector(world)
    world.replaced.note([NEVER], -math.inf)


SKIPPED_DELETES = FeedFault(
    "skipped deletes", _AUDIT_S, _skip_deletes, _report_all, ends_trust=True
)
SKIPPED = FeedFault("skipped operations", _AUDIT_S, _skip_any, _report_all, ends_trust=True)
ALTERED_LATE = FeedFault(
    "altered values", _NO_PROOF_S + _AUDIT_S, _alter_values, _report_all, ends_trust=True
)
ALTERED_EARLY = FeedFault("unproved values", 0.0, _alter_unproved_values, _report_all)
