"""How a dimension hears of changes."""

from lookup_core.settings import FeedSettings, ReloadSettings
from service.config.refresh import Refresh
from tests.service.config.configuration import dimension_faults

CHANGELOG = {"brokers": ["kafka:9092"], "topic": "shop.customers", "format": "debezium_json"}


def test_nothing_is_followed_by_default() -> None:
    """All three words may stand in a file, with null."""
    refresh = Refresh.model_validate({"listen": None, "changelog": None, "reload": None})

    assert (refresh, refresh.feed) == (Refresh(), None)
    assert (refresh.reload_settings(), refresh.feed_settings()) == (
        ReloadSettings(),
        FeedSettings(),
    )


def test_feed_is_named_by_its_key() -> None:
    """Either of both tells of changes."""
    refreshes: tuple[dict[str, object], ...] = ({"listen": {}}, {"changelog": CHANGELOG})
    feeds = [Refresh.model_validate(each).feed for each in refreshes]

    assert feeds == ["listen", "changelog"]


def test_two_feeds_are_refused() -> None:
    """Each tells of all changes, so that a second one is a mistake."""
    assert (
        "refresh.changelog: give one of refresh.listen and refresh.changelog; each tells all"
        in (dimension_faults(refresh={"listen": {}, "changelog": CHANGELOG}))
    )


def test_engine_gets_the_feeds_bounds() -> None:
    """Staleness and drift reach the engine in seconds, of whichever feed there is.

    Without heartbeats nobody knows a quiet source from a dead one.
    """
    changelog = CHANGELOG | {"alignment": {"max_drift": "2s"}}
    beating = changelog | {"heartbeat_topic": "heartbeats", "max_staleness": "1m"}
    followed = ({"changelog": each} for each in (changelog, beating))
    refreshes = ({"listen": {"max_staleness": "7s"}}, *followed)

    assert [Refresh.model_validate(each).feed_settings() for each in refreshes] == [
        FeedSettings(max_silence_s=7.0),
        FeedSettings(max_drift_s=2.0),
        FeedSettings(max_staleness_s=60.0, max_drift_s=2.0),
    ]


def test_engine_gets_the_time_of_reloads() -> None:
    """Reloading is the engine's own doing."""
    refresh = Refresh.model_validate({"reload": {"every": "1h"}})

    assert refresh.reload_settings() == ReloadSettings(every_s=3600.0)
