"""A broker for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker


@pytest.fixture(scope="session")
def broker(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that may be killed; each test leaves it running."""
    with kafka_broker(tmp_path_factory.mktemp("kafka"), libraries=libraries) as broker:
        yield broker
