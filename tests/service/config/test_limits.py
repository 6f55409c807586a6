"""The bounds of the process."""

from service.config.settings import Limits
from tests.service.config.configuration import faults


def test_defaults_are_those_of_the_manual() -> None:
    """Nobody has to set a limit."""
    assert Limits().model_dump() == {
        "memory_bytes": 512 * 2**20,
        "connections": 256,
        "channels": 1024,
        "request_keys": 100_000,
        "request_bytes": 32 * 2**20,
    }


def test_request_fits_into_memory() -> None:
    """A request that may be larger than all memory is a contradiction."""
    assert faults({"limits": {"memory": "16MiB", "request_bytes": "17MiB"}}) == [
        "limits: request_bytes is more than memory; lower it, or raise that"
    ]


def test_wrong_memory_is_one_fault() -> None:
    """What depends on a faulty value is not a second fault."""
    (fault,) = faults({"limits": {"memory": "16MB", "request_bytes": "17MiB"}})

    assert fault.startswith("limits.memory: '16MB' is not a size from 16MiB to 1TiB")


def test_zero_is_no_limit() -> None:
    """Zero keys or connections would refuse everything."""
    assert faults({"limits": {"connections": 0, "channels": 0, "request_keys": 0}}) == [
        "limits.connections: 0 is not a whole number from 1 to 65535",
        "limits.channels: 0 is not a whole number from 1 to 1000000",
        "limits.request_keys: 0 is not a whole number from 1 to 10000000",
    ]
