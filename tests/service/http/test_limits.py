"""The limits of the HTTP side are those that the configuration promises."""

from service.config.settings import Limits as ConfiguredLimits
from service.http.limits import Limits


def test_defaults_are_the_configured_ones() -> None:
    """A service without settings has the bounds that are documented for it."""
    promised, limits = ConfiguredLimits(), Limits()

    assert (limits.connections, limits.request_keys, limits.request_bytes) == (
        promised.connections,
        promised.request_keys,
        promised.request_bytes,
    )


def test_deadlines_are_the_documented_ones() -> None:
    """Headers have ten seconds, bodies and responses thirty."""
    limits = Limits()

    assert limits.header_deadline_s == 10.0
    assert (limits.body_deadline_s, limits.send_deadline_s) == (30.0, 30.0)
