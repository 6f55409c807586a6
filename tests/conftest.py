"""What holds for every test: the ledger of tiers, and that what hypothesis found can be repeated.

Not a place for fixtures of single parts: those stand in the folder of the part.
"""

from pathlib import Path

import hypothesis
import pytest

from demo.embedded_kafka.kafka_broker import KafkaUnavailable, kafka_libraries

pytest_plugins = ["tests.tiers"]

# A slow machine is not a wrong answer; the blob reproduces a failure exactly.
hypothesis.settings.register_profile("sidelook", deadline=None, print_blob=True)
hypothesis.settings.load_profile("sidelook")


@pytest.fixture(scope="session")
def libraries() -> Path:
    """What Kafka is made of."""
    try:
        return kafka_libraries()
    except KafkaUnavailable as error:
        pytest.skip(f"no Kafka: {error}")
