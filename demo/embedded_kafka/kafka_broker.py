"""Kafka broker: broker and KRaft controller in one process on loopback, and its libraries."""

import asyncio
import base64
import os
import random
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from demo.embedded_kafka.java_process import JavaProcess
from demo.embedded_kafka.kafka_topics import has_controller
from demo.maven_libraries import LibrariesUnavailable, Library, LibrarySet, maven_libraries

VERSIONS = {"kafka": "4.1.0", "debezium": "3.2.0.Final"}
_LIBRARIES = LibrarySet(
    folder=f"kafka-{VERSIONS['kafka']}-{VERSIONS['debezium']}",
    title="Kafka and Debezium",
    size_mb=58,
    libraries=(
        Library("org.apache.kafka", "kafka_2.13", VERSIONS["kafka"]),
        Library("org.apache.kafka", "connect-runtime", VERSIONS["kafka"]),
        Library("org.apache.kafka", "connect-json", VERSIONS["kafka"]),
        Library("io.debezium", "debezium-connector-postgres", VERSIONS["debezium"]),
    ),
)


class KafkaUnavailable(Exception):
    """Kafka cannot run on this machine; the message has the reason."""


def kafka_libraries(
    *, environ: Mapping[str, str] = os.environ, say: Callable[[str], None] = lambda _: None
) -> Path:
    """Return the folder of the libraries (60 MB), which the first call downloads under a lock.

    Reports slow steps to `say` before they start. Raises KafkaUnavailable without Java, Maven or
    network.
    """
    if not shutil.which("java", path=environ.get("PATH")):
        raise KafkaUnavailable("Kafka needs Java; install it")
    try:
        return maven_libraries(_LIBRARIES, environ=environ, say=say)
    except LibrariesUnavailable as error:
        raise KafkaUnavailable(str(error)) from error


START_TIMEOUT_S = 60.0
# Below the ephemeral ports, so that no other socket takes them while the broker is down.
_PORTS = range(20_000, 30_000)
_POLL_INTERVAL_S = 0.02
_CONFIGURATION = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1000
auto.create.topics.enable=true
num.partitions=2
sasl.enabled.mechanisms=PLAIN
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
listener.name.sasl.plain.sasl.jaas.config={login}
"""
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required {users};"


class KafkaBroker(JavaProcess):
    """A broker: clients of `address` have all rights, the `users` of `sasl_address` have none."""

    def __init__(
        self,
        folder: Path,
        *,
        libraries: Path,
        users: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, libraries=libraries, name="kafka")
        self._users = users or {}  # {name: password}
        free, self._sasl, self._controller = _free_ports(3)
        self._plain = port or free

    @property
    def address(self) -> str:
        """Host and port without authentication."""
        return f"127.0.0.1:{self._plain}"

    @property
    def sasl_address(self) -> str:
        """Host and port with SASL."""
        return f"127.0.0.1:{self._sasl}"

    def start(self) -> None:
        """Start with the data of the folder; returns when topics can be managed."""
        settings = self._folder / "server.properties"
        if not settings.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            settings.write_text(self._configuration())
            self._format(settings)
        self.launch("kafka.Kafka", str(settings))
        self._wait()

    def _configuration(self) -> str:
        accounts = " ".join(f'user_{name}="{word}"' for name, word in self._users.items())
        return _CONFIGURATION.format(
            controller=self._controller,
            plain=self._plain,
            sasl=self._sasl,
            data=self._folder / "data",
            login=_LOGIN.format(users=accounts),
        )

    def _format(self, settings: Path) -> None:
        # 22 characters, as Kafka writes them; a leading dash would look like an option.
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        try:
            self.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
        except subprocess.CalledProcessError as error:
            raise KafkaUnavailable(f"did not start: {self.log.read_text()}") from error

    def _wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if not self.is_running or time.monotonic() > deadline:
                raise KafkaUnavailable(f"did not start: {self.log.read_text()}")
            time.sleep(_POLL_INTERVAL_S)

    def _is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._plain), timeout=1.0).close()
        except OSError:
            return False
        # The broker listens before it has a controller. The caller may be in a running event loop.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, has_controller(self.address)).result()


@contextmanager
def kafka_broker(
    folder: Path,
    *,
    libraries: Path,
    users: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Iterator[KafkaBroker]:
    """Start a broker and stop it at the end; `port` is that of `address`, by default a free one."""
    broker = KafkaBroker(folder, libraries=libraries, users=users, port=port)
    broker.start()
    try:
        yield broker
    finally:
        broker.thaw()
        broker.stop()


def _free_ports(count: int) -> list[int]:
    drawn = random.sample(_PORTS, len(_PORTS))
    return list(islice(filter(_is_free, drawn), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
