"""How keys become queries."""

from lookup_core.settings import BatchSettings
from service.config.dimension import Batch
from tests.service.config.configuration import dimension_faults


def test_defaults_are_the_engines_defaults() -> None:
    """The file and the engine agree on what nobody sets."""
    assert Batch().engine_settings() == BatchSettings()


def test_engine_gets_seconds() -> None:
    """Units end at the configuration."""
    batch = Batch.model_validate({"max_keys": 9, "linger": "5ms", "max_in_flight": 2})

    assert batch.engine_settings() == BatchSettings(max_keys=9, linger_s=0.005, max_in_flight=2)


def test_no_keys_or_queries_are_senseless() -> None:
    """With zero of either, no key would ever be asked for."""
    assert dimension_faults(batch={"max_keys": 0, "max_in_flight": 0}) == [
        "batch.max_keys: 0 is not a whole number from 1 to 100000",
        "batch.max_in_flight: 0 is not a whole number from 1 to 1000",
    ]
