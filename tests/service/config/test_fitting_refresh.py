"""Refreshing that fits its dimension."""

from tests.service.config.configuration import POSTGRES, dimension_faults, table, table_faults
from tests.service.config.test_changelog import CHANGELOG


def test_feed_needs_a_cache() -> None:
    """Nothing is kept that could be fresh."""
    assert table_faults(cache={"mode": "none"}, refresh={"listen": {}}) == [
        "refresh.listen: has no effect with cache.mode: none, which keeps nothing"
    ]


def test_feed_needs_a_database() -> None:
    """A file has neither triggers nor transactions."""
    assert dimension_faults(refresh={"changelog": CHANGELOG}) == [
        "refresh.changelog: tells of a table in PostgreSQL; the source is a file"
    ]


def test_pooler_loses_notifications() -> None:
    """LISTEN belongs to a session, and behind a pooler there is none."""
    [fault] = table_faults(source=POSTGRES | {"pgbouncer": True}, refresh={"listen": {}})

    assert fault.startswith("refresh.listen: notifications are lost behind a PgBouncer")


def test_reload_needs_a_whole_table() -> None:
    """What is read through is read anew by itself."""
    assert dimension_faults(refresh={"reload": {"every": "1h"}}) == [
        "refresh.reload: only a table that is held whole is loaded anew: cache.mode: full"
    ]


def test_whole_table_may_be_followed_and_reloaded() -> None:
    """One does not exclude the other."""
    refresh = {"changelog": CHANGELOG, "reload": {"at": "03:30"}}
    followed = table(cache={"mode": "full"}, refresh=refresh)

    assert followed.refresh.feed == "changelog"
    assert followed.engine_settings("c").full.reload.at_s == 12_600.0


def test_fault_elsewhere_is_told_once() -> None:
    """A faulty source or cache brings no second fault here."""
    faults = table_faults(
        source=POSTGRES | {"table": ""}, cache={"mode": "fast"}, refresh={"listen": {}}
    )

    assert faults == [
        "source.table: must not be empty",
        "cache.mode: must be 'partial', 'full' or 'none'",
    ]
