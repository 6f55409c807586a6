"""Freshness by a changelog in Kafka: where it is, how it is written, and how far it may lag.

Opens no connection; only secret files are looked into.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from lookup_core.changelog.format import ChangelogFormat
from lookup_core.settings import FeedSettings
from service.config.host_port import parse_host_port
from service.config.quantity import duration
from service.config.secret_file import SecretFile, read_secret
from service.config.section import Section, written

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
