"""`refresh`: notifications, changelog and reloads, checked against source and cache."""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from lookup_core.changelog.format import ChangelogFormat
from lookup_core.settings import CacheMode, FeedSettings, ReloadSettings
from service.config.fault_lines import BELOW
from service.config.host_port import parse_host_port
from service.config.quantity import duration
from service.config.secrets import SecretFile, read_secret
from service.config.section import Section, written
from service.config.source import PostgresSource

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class Reload(Section):
    """What `refresh.reload` holds: one of both."""

    every_s: Annotated[float, duration("1s", "365d")] | None = Field(
        default=None, alias="every", description="pause between the end of a load and the next"
    )
    at: str | None = Field(default=None, description="time of day in UTC, such as '03:30'")

    @field_validator("at", mode="after")
    @classmethod
    def _is_time_of_day(cls, at: str | None, info: ValidationInfo) -> str | None:
        if (info.data.get("every_s", 0.0) is None) == (at is None):
            raise ValueError("give exactly one of reload.every and reload.at")
        if at is not None and _TIME_OF_DAY.fullmatch(at) is None:
            raise ValueError("must be a time of day in UTC, such as '03:30'; write it in quotes")
        return at

    def engine_settings(self) -> ReloadSettings:
        """The same for the engine."""
        if self.at is None:
            return ReloadSettings(every_s=self.every_s)
        hours, minutes = map(int, self.at.split(":"))
        return ReloadSettings(at_s=60.0 * (60 * hours + minutes))


MOST_CHANNEL_BYTES = 63  # PostgreSQL refuses longer names
_DIGEST_CHARACTERS = 8


class Notifications(Section):
    """What `refresh.listen` holds."""

    channel: str | None = Field(
        default=None,
        pattern=rf"^[A-Za-z0-9_.-]{{1,{MOST_CHANNEL_BYTES}}}$",
        description="name of the channel; sidelook_ and the dimension's name, if it is not given",
    )
    max_staleness_s: Annotated[float, duration("6s", "1h")] = written(
        "10s",
        alias="max_staleness",
        description="after so long without a sign of life, nothing is served from the cache",
    )

    def feed_settings(self) -> FeedSettings:
        """What the engine asks of it; not by the server's clock, which may differ from ours."""
        return FeedSettings(max_silence_s=self.max_staleness_s)

    def channel_of(self, dimension: str) -> str:
        """The channel of a dimension with this name."""
        name = self.channel or f"sidelook_{dimension}"
        if len(name) <= MOST_CHANNEL_BYTES:
            return name
        digest = sha256(dimension.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        return f"{name[: MOST_CHANNEL_BYTES - len(digest) - 1]}_{digest}"


_STALENESS_S = 30.0  # unless it is written
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class Alignment(Section):
    """How far one partition may run ahead of the slowest one, in the time of its events."""

    max_drift_s: Annotated[float, duration("1ms")] | None = Field(default=None, alias="max_drift")


class Security(Section):
    """How to connect to the brokers; without TLS and login unless it is said here."""

    tls: bool = Field(default=False, strict=True)
    ca_file: Path | None = Field(default=None, description="certificates; the system's, if null")
    certificate_file: Path | None = Field(default=None, description="of this client, with its key")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password_file: SecretFile | None = None

    @field_validator("password_file", mode="after")
    @classmethod
    def _completes_the_login(cls, password_file: Path | None, info: ValidationInfo) -> Path | None:
        parts = (info.data.get("mechanism"), info.data.get("username"), password_file)
        if len({part is None for part in parts}) > 1:
            raise ValueError("give all or none of mechanism, username and password_file")
        return password_file

    @field_validator("certificate_file", "ca_file", mode="after")
    @classmethod
    def _needs_tls(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and not info.data.get("tls", True):
            raise ValueError("has no effect without tls: true")
        return path

    def read_password(self) -> str | None:
        """The password, from its file each time anew; raises OSError."""
        return None if self.password_file is None else read_secret(self.password_file)


class Changelog(Section):
    """What `refresh.changelog` holds."""

    brokers: tuple[str, ...] = Field(min_length=1, description="host:port of some of the brokers")
    topic: TopicName
    format: ChangelogFormat = Field(description="how changes are written")
    heartbeat_topic: TopicName | None = Field(
        default=None, description="where Debezium tells that it lives, if its heartbeats are on"
    )
    max_staleness_s: Annotated[float, duration("5s", "1d")] = written(
        f"{_STALENESS_S:.0f}s",
        alias="max_staleness",
        description="of the heartbeats, if there are; older: nothing is served from the cache",
    )
    alignment: Alignment = Field(default_factory=Alignment, examples=[{"max_drift": "10s"}])
    security: Security = Field(default_factory=Security)

    @field_validator("heartbeat_topic", mode="after")
    @classmethod
    def _is_another_topic(cls, heartbeat_topic: str | None, info: ValidationInfo) -> str | None:
        if heartbeat_topic is not None and heartbeat_topic == info.data.get("topic"):
            raise ValueError("is the topic of the changes; heartbeats have one of their own")
        return heartbeat_topic

    @field_validator("max_staleness_s", mode="after")
    @classmethod
    def _has_heartbeats(cls, staleness_s: float, info: ValidationInfo) -> float:
        if staleness_s != _STALENESS_S and not info.data.get("heartbeat_topic", True):
            raise ValueError("has no effect without changelog.heartbeat_topic")
        return staleness_s

    @field_validator("brokers", mode="after")
    @classmethod
    def _are_addresses(cls, brokers: tuple[str, ...]) -> tuple[str, ...]:
        for broker in brokers:
            parse_host_port(broker)
        return brokers

    def feed_settings(self) -> FeedSettings:
        """What the engine asks of it; without heartbeats a quiet source may be a dead one."""
        staleness_s = None if self.heartbeat_topic is None else self.max_staleness_s
        drift_s = self.alignment.max_drift_s
        return FeedSettings(max_staleness_s=staleness_s, max_drift_s=drift_s)


class Refresh(Section):
    """Where changes come from; nothing of it: rows are as old as their time to live allows."""

    listen: Notifications | None = Field(
        default=None,
        examples=[{}],
        description="notifications by the table's triggers; {} takes the defaults",
    )
    changelog: Changelog | None = Field(default=None, description="changes in a topic of Kafka")
    reload: Reload | None = Field(
        default=None, examples=[{"every": "1h"}], description="loading the whole table anew"
    )

    @property
    def feed(self) -> str | None:
        """The name of what tells of changes; None without."""
        feeds = {"listen": self.listen, "changelog": self.changelog}
        return next((name for name, feed in feeds.items() if feed is not None), None)

    def reload_settings(self) -> ReloadSettings:
        """When the engine loads the table anew."""
        return ReloadSettings() if self.reload is None else self.reload.engine_settings()

    def feed_settings(self) -> FeedSettings:
        """What the engine asks of the feed."""
        if self.changelog is not None:
            return self.changelog.feed_settings()
        return FeedSettings() if self.listen is None else self.listen.feed_settings()

    @field_validator("changelog", mode="after")
    @classmethod
    def _is_the_only_feed(
        cls, changelog: Changelog | None, info: ValidationInfo
    ) -> Changelog | None:
        if changelog is not None and info.data.get("listen") is not None:
            raise ValueError("give one of refresh.listen and refresh.changelog; each tells all")
        return changelog


def fitting_refresh(refresh: Refresh, info: ValidationInfo) -> Refresh:
    """The same; raises PydanticCustomError, naming what has no effect or cannot work."""
    feed = refresh.feed
    if feed is not None:
        _check_feed(feed, info.data)
    mode = _mode(info.data)
    if refresh.reload is not None and mode is not CacheMode.FULL:
        raise _fault("reload", "only a table that is held whole is loaded anew: cache.mode: full")
    return refresh


def _check_feed(feed: str, data: Mapping[str, Any]) -> None:
    if _mode(data) is CacheMode.NONE:
        raise _fault(feed, "has no effect with cache.mode: none, which keeps nothing")
    source = data.get("source")
    if source is None:
        return  # faulty itself
    if not isinstance(source, PostgresSource):
        raise _fault(feed, "tells of a table in PostgreSQL; the source is a file")
    if feed == "listen" and source.pgbouncer:
        detail = "notifications are lost behind a PgBouncer that pools transactions; "
        raise _fault(feed, f"{detail}let the source's address be the server's own")


def _mode(data: Mapping[str, Any]) -> CacheMode:
    # A cache that is faulty itself is no reason for a second fault.
    return data["cache"].mode if "cache" in data else CacheMode.FULL


def _fault(key: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("no_effect", "{text}", {"text": text, BELOW: (key,)})


FittingRefresh = Annotated[Refresh, AfterValidator(fitting_refresh)]
