"""How one changelog topic is reached and read.

Plain values: parsing units and reading secrets from files is the business of the configuration.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka.helpers import create_ssl_context

RETRY_BACKOFF_MS = 250  # a broker that is away is asked for so often


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The brokers, the topic, and how long what takes."""

    brokers: tuple[str, ...]  # host:port, any of the cluster
    topic: str
    heartbeat_topic: str | None = None  # Debezium's `__debezium-heartbeat.<prefix>`
    security_protocol: str = "PLAINTEXT"  # or SSL, SASL_PLAINTEXT, SASL_SSL
    sasl_mechanism: str = "PLAIN"  # or SCRAM-SHA-256, SCRAM-SHA-512
    sasl_user: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None  # None: the machine's authorities
    certificate_file: Path | None = None  # of the client, if the brokers want one
    certificate_key_file: Path | None = None
    request_timeout_s: float = 10.0
    discovery_interval_s: float = 10.0  # new partitions are found within
    lookback_s: float = 60.0  # how far back reading begins
    # And so many before that: by the last ones it is known what a connector tells once more.
    lookback_messages: int = 10
    give_up_after_s: float = 30.0  # of silence, to find out with new connections what is wrong
    # What one answer of a broker may bring; a single batch that is larger is sent all the same.
    partition_fetch_bytes: int = 2**20
    fetch_bytes: int = 8 * 2**20

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that are read."""
        return (self.topic, self.heartbeat_topic) if self.heartbeat_topic else (self.topic,)

    @property
    def address(self) -> str:
        """The topic and its brokers, for people."""
        return f"topic {self.topic} of {', '.join(self.brokers)}"

    def connection_options(self) -> dict[str, object]:
        """What aiokafka wants for a connection; raises OSError for files that cannot be read."""
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
            cafile=self.ca_file,
            certfile=self.certificate_file,
            keyfile=self.certificate_key_file,
        )
        return context
