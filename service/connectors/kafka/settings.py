"""Settings of one changelog topic, as plain values: the configuration parses units and secrets."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.helpers import create_ssl_context

RETRY_BACKOFF_MS = 250  # between connection attempts to a broker


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Brokers, topic, credentials, timeouts and limits."""

    brokers: tuple[str, ...]  # host:port, any of the cluster
    topic: str
    heartbeat_topic: str | None = None  # Debezium's `__debezium-heartbeat.<prefix>`
    security_protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    sasl_mechanism: str = "PLAIN"  # or SCRAM-SHA-256, SCRAM-SHA-512
    sasl_user: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None  # None: the authorities of the system
    certificate_file: Path | None = None  # the client's, if the brokers require one
    request_timeout_s: float = 10.0
    discovery_interval_s: float = 10.0  # finds new partitions
    lookback_s: float = 60.0  # reading begins this long before the first discovery
    # Additional messages: the replay filter needs the last changes before a replay.
    lookback_messages: int = 10
    give_up_after_s: float = 30.0  # without a response: new connections show the cause

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics to read."""
        return (self.topic, self.heartbeat_topic) if self.heartbeat_topic else (self.topic,)

    @property
    def address(self) -> str:
        """The topic and its brokers, for messages."""
        return f"topic {self.topic} of {', '.join(self.brokers)}"

    def connection_options(self) -> dict[str, object]:
        """The connection options of aiokafka; raises OSError for unreadable files."""
        return {
            "client_id": "sidelook",
            "request_timeout_ms": round(self.request_timeout_s * 1000),
            "security_protocol": self.security_protocol,
            "ssl_context": self._ssl_context(),
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_user,
            "sasl_plain_password": self.sasl_password,
        }

    def _ssl_context(self) -> ssl.SSLContext | None:
        if not self.security_protocol.endswith("SSL"):
            return None
        context: ssl.SSLContext = create_ssl_context(
            cafile=self.ca_file, certfile=self.certificate_file
        )
        return context
