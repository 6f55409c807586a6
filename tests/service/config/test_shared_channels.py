"""Channels of notifications are told the keys of one table."""

from service.config.settings import shared_channel
from tests.service.config.configuration import CUSTOMERS, POSTGRES, faults, table

LISTEN = {"refresh": {"listen": {"channel": "shop"}}}


def test_other_table_needs_another_channel() -> None:
    """Its keys would be taken for those of the first one."""
    other = CUSTOMERS | LISTEN | {"source": POSTGRES | {"table": "public.orders"}}
    dimensions = {"customers": CUSTOMERS | LISTEN, "orders": other}

    [fault] = faults({"dimensions": dimensions})
    assert fault.startswith(
        "dimensions.orders.refresh.listen.channel: the channel of dimension customers, which has"
    )


def test_same_table_and_key_may_share() -> None:
    """Two caches of one table hear the same."""
    assert shared_channel({"a": table(**LISTEN), "b": table(columns=["name"], **LISTEN)}) is None


def test_other_servers_have_other_channels() -> None:
    """A name means nothing beyond its database."""
    elsewhere = POSTGRES | {"table": "public.orders", "dsn": "postgresql://other/shop"}

    assert shared_channel({"a": table(**LISTEN), "b": table(source=elsewhere, **LISTEN)}) is None


def test_who_does_not_listen_shares_nothing() -> None:
    """Without notifications there is no channel."""
    assert shared_channel({"a": table(), "b": table(key=["name"])}) is None
