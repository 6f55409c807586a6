"""`refresh`: notifications, changelog and reloads of a dimension."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from lookup_core.changelog.format import ChangelogFormat
from lookup_core.settings import AuditSettings, CacheMode, FeedSettings
from service.config.fault_lines import BELOW
from service.config.host_port import parse_host_port
from service.config.quantity import duration
from service.config.secrets import SecretFile
from service.config.section import FilePath, Given, Section, copied, rule, written
from service.config.source import PostgresSource, Source
from service.file_identity import read_secret

MOST_NAME_BYTES = 63  # PostgreSQL's limit
LEAST_GRACE_S = 15.0  # changes of the table itself are noticed later than those of rows
UNCHECKED = "none"  # as a publication
_DIGEST_CHARACTERS = 8
_DEFAULT_STALENESS_S = 30.0
_WEAK_CLAIM_S = 300.0  # without heartbeats: a connector may lag unnoticed
_DEBEZIUM = ChangelogFormat.DEBEZIUM_JSON
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class ReloadSchedule(Section):
    """Schedule of reloads of the whole table, in mode `full`.

    Set exactly one of `every` and `at`.
    """

    every_s: Annotated[float, duration("1s", "365d")] | None = None
    """Time between the end of a load and the start of the next one."""
    at: str | None = None
    """Time of day in UTC, in quotes, such as `'03:30'`."""

    @rule("at")
    def _is_time_of_day(cls, at: str | None, given: Given) -> None:
        if (given.get("every_s", 0.0) is None) == (at is None):
            raise ValueError("set exactly one of reload.every and reload.at")
        if at is not None and _TIME_OF_DAY.fullmatch(at) is None:
            raise ValueError("must be a time of day in UTC, such as '03:30'; write it in quotes")

    @property
    def at_s(self) -> float | None:
        """The time of day, in seconds since midnight UTC."""
        if self.at is None:
            return None
        hours, minutes = map(int, self.at.split(":"))
        return 60.0 * (60 * hours + minutes)


class Notifications(Section):
    """Change feed from notifications of triggers, which `sidelook gen-triggers` prints.

    `{}` sets the defaults.
    """

    channel: str | None = Field(default=None, pattern=rf"^[A-Za-z0-9_.-]{{1,{MOST_NAME_BYTES}}}$")
    """PostgreSQL channel of the notifications. `null`: `sidelook_` and the name of the
    dimension."""
    max_staleness_s: Annotated[float, duration("6s", "1h")] = written("10s")
    """Maximum time without a message of the feed. Beyond it, lookups bypass the cache."""

    def channel_of(self, dimension: str) -> str:
        """Return the channel for the dimension of this name."""
        name = self.channel or f"sidelook_{dimension}"
        if len(name) <= MOST_NAME_BYTES:
            return name
        digest = sha256(dimension.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        return f"{name[: MOST_NAME_BYTES - len(digest) - 1]}_{digest}"


TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class Alignment(Section):
    """Alignment of the topic's partitions by event time."""

    max_drift_s: Annotated[float, duration("1ms")] | None = None
    """Maximum lead of a partition over the slowest one; a partition beyond it is paused. `null`: no
    limit."""


class Security(Section):
    """TLS and SASL login of the connections to the brokers."""

    tls: bool = Field(default=False, strict=True)
    """Whether connections use TLS."""
    ca_file: FilePath | None = None
    """PEM file with CA certificates. `null`: those of the system."""
    certificate_file: FilePath | None = None
    """PEM file with the client certificate and its key."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL mechanism. Set all or none of `mechanism`, `username` and `password_file`."""
    username: str | None = None
    """SASL user."""
    password_file: SecretFile | None = None
    """File with the password of the SASL user."""

    @rule("password_file")
    def _completes_the_login(cls, password_file: Path | None, given: Given) -> None:
        parts = (given.get("mechanism"), given.get("username"), password_file)
        if len({part is None for part in parts}) > 1:
            raise ValueError("set all or none of mechanism, username and password_file")

    @rule("certificate_file", "ca_file")
    def _needs_tls(cls, path: Path | None, given: Given) -> None:
        if path is not None and not given.get("tls", True):
            raise ValueError("has no effect without tls: true")

    def read_password(self) -> str | None:
        """Read the password from its file; raises OSError."""
        return None if self.password_file is None else read_secret(self.password_file)


class Changelog(Section):
    """Change feed from a Kafka topic, such as one of Debezium.

    Set at most one of `listen` and `changelog`.
    """

    brokers: tuple[str, ...] = Field(min_length=1)
    """`host:port` of one or more brokers of the cluster."""
    topic: TopicName
    """Topic with the changes of the table."""
    format: ChangelogFormat
    """`debezium_json`, or `upsert_json`: messages with the key of a row, and the row or null as
    value."""
    heartbeat_topic: TopicName | None = None
    """Topic of Debezium's heartbeats. Without it, the staleness is unknown."""
    database: str | None = Field(default=None, min_length=1)
    """Database of the table in the events of Debezium; those of others are ignored. `null`: its
    name on the server."""
    server: str | None = Field(default=None, min_length=1)
    """`topic.prefix` of the table's connector; events of others are ignored. `null`: as the topics
    are named; rows of other events are queried."""
    max_staleness_s: Annotated[float, duration("5s", "1d")] = written(
        f"{_DEFAULT_STALENESS_S:.0f}s"
    )
    """Maximum age of the last heartbeat. Beyond it, lookups bypass the cache. Needs
    `heartbeat_topic`."""
    publication: Annotated[str, Field(min_length=1)] | None = None
    """Publication of the connector, which must report all changes of the table. `none`: not
    checked. `null`: one of the database must, if it has any."""
    alignment: Alignment = Field(default_factory=Alignment, examples=[{"max_drift": "10s"}])
    """Alignment of the topic's partitions by event time."""
    security: Security = Field(default_factory=Security)
    """TLS and login of the connections to the brokers."""

    @rule("heartbeat_topic")
    def _is_another_topic(cls, heartbeat_topic: str | None, given: Given) -> None:
        if heartbeat_topic is not None and heartbeat_topic == given.get("topic"):
            raise ValueError("is the topic of the changes; heartbeats need another topic")

    @rule("max_staleness_s")
    def _has_heartbeats(cls, staleness_s: float, given: Given) -> None:
        if staleness_s != _DEFAULT_STALENESS_S and not given.get("heartbeat_topic", True):
            raise ValueError("has no effect without changelog.heartbeat_topic")

    @rule("publication")
    def _is_of_debezium(cls, publication: str | None, given: Given) -> None:
        is_other = given.get("format", _DEBEZIUM) is not _DEBEZIUM
        if publication is not None and is_other:
            raise ValueError("has no effect without changelog.format: debezium_json")
        if len((publication or "").encode()) > MOST_NAME_BYTES:
            raise ValueError(f"is longer than the {MOST_NAME_BYTES} bytes of a name in PostgreSQL")

    @rule("brokers")
    def _are_addresses(cls, brokers: tuple[str, ...], _given: Given) -> None:
        for broker in brokers:
            parse_host_port(broker)


class Audit(Section):
    """Audit of the change feed: some cached rows are read again, and compared.

    A row that differs without an event ends the trust in the feed. `null`: no row is audited, and
    rows of events are used unproved.
    """

    every_s: Annotated[float, duration("1s", "1d")] = written("1m")
    """Time between two queries, on average."""
    keys: int = Field(default=50, ge=1, le=1000)
    """Keys of one query, at most."""


class Refresh(Section):
    """Change feed and reloads. Without them, `cache.ttl` bounds the age of rows."""

    listen: Notifications | None = Field(default=None, examples=[{}])
    """Notifications of triggers, which `sidelook gen-triggers` prints. `{}`: with the defaults."""
    changelog: Changelog | None = None
    """Kafka topic with the changes of the table. Set at most one of `listen` and `changelog`."""
    reload: ReloadSchedule | None = Field(default=None, examples=[{"every": "1h"}])
    """Schedule of reloads of the whole table, in mode `full`."""
    audit: Audit | None = Field(default_factory=Audit, examples=[{"every": "5m"}])
    """Audit of the change feed. `null`: no row is audited, and rows of events are used unproved."""

    @field_validator("audit", mode="before")
    @classmethod
    def _is_not_off(cls, audit: object) -> object:
        is_never = isinstance(audit, dict) and audit.get("every", "") is None
        if is_never or audit in (False, "off", "false"):
            raise ValueError(
                "has no time between queries; to turn the audit off, write `audit: null`"
            )
        return audit

    @property
    def feed(self) -> str | None:
        """Name of the change feed; None without one."""
        feeds = {"listen": self.listen, "changelog": self.changelog}
        return next((name for name, feed in feeds.items() if feed is not None), None)

    def feed_settings(self) -> FeedSettings:
        """Return the bounds of the feed for the engine."""
        listen, changelog = self.listen, self.changelog
        if listen is not None:
            return FeedSettings(  # by this machine's clock
                max_silence_s=listen.max_staleness_s, audit=self._audit(listen.max_staleness_s)
            )
        if changelog is None:
            return FeedSettings()
        # Without heartbeats, staleness is unknown.
        staleness_s = None if changelog.heartbeat_topic is None else changelog.max_staleness_s
        return FeedSettings(
            max_staleness_s=staleness_s,
            max_drift_s=changelog.alignment.max_drift_s,
            audit=self._audit(staleness_s or _WEAK_CLAIM_S),
        )

    def _audit(self, grace_s: float) -> AuditSettings | None:
        if self.audit is None:
            return None
        return copied(AuditSettings, self.audit, grace_s=max(grace_s, LEAST_GRACE_S))

    @rule("changelog")
    def _is_the_only_feed(cls, changelog: Changelog | None, given: Given) -> None:
        if changelog is not None and given.get("listen") is not None:
            raise ValueError("set only one of refresh.listen and refresh.changelog")


def check_refresh(refresh: Refresh, source: Source | None, mode: CacheMode) -> None:
    """Raise PydanticCustomError if a part has no effect or cannot work."""
    if refresh.feed is not None:
        _check_feed(refresh.feed, source, mode)
    elif refresh.audit not in (None, Audit()):
        raise _fault("audit", "has no effect without refresh.listen or refresh.changelog")
    if refresh.reload is not None and mode is not CacheMode.FULL:
        raise _fault("reload", "needs cache.mode: full")


def _check_feed(feed: str, source: Source | None, mode: CacheMode) -> None:
    if mode is CacheMode.NONE:
        raise _fault(feed, "has no effect with cache.mode: none")
    if source is None:
        return
    if not isinstance(source, PostgresSource):
        raise _fault(feed, "needs a PostgreSQL table; the source is a file")
    if feed == "listen" and source.pgbouncer:
        detail = "a PgBouncer that pools transactions loses notifications; "
        raise _fault(feed, f"{detail}set the address of the server itself in the source")
    if source.feed_fault is not None:
        remedy = "remove this; cache.ttl bounds the age of rows, or refresh.reload in mode full"
        raise _fault(feed, f"{source.feed_fault}; {remedy}")


def _fault(key: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("no_effect", "{text}", {"text": text, BELOW: (key,)})
