"""Settings of all tests: the tiers, hypothesis, and the libraries of Kafka."""

from pathlib import Path

import hypothesis
import pytest

from demo.embedded_kafka.kafka_broker import KafkaUnavailable, kafka_libraries

pytest_plugins = ["tests.tiers"]

# No deadline, as machines may be slow; the blob reproduces a failure exactly.
hypothesis.settings.register_profile("sidelook", deadline=None, print_blob=True)
hypothesis.settings.load_profile("sidelook")


@pytest.fixture(scope="session")
def libraries() -> Path:
    """The libraries of Kafka; skips the test if they are not available."""
    try:
        return kafka_libraries()
    except KafkaUnavailable as error:
        pytest.skip(f"no Kafka: {error}")
