"""The channel that a table's triggers tell of changes on."""

import pytest

from service.config.refresh import Notifications
from tests.service.config.configuration import table_faults


def test_channel_has_the_dimensions_name() -> None:
    """Nobody needs to think of a name, and none is longer than PostgreSQL's names."""
    names = ("customers", "c" * 63, "c" * 62)
    channel, *long = [Notifications().channel_of(name) for name in names]

    assert channel == "sidelook_customers"
    assert {len(each) for each in long} == {63}
    assert len(set(long)) == 2


def test_channel_may_be_given() -> None:
    """Two dimensions of one table may share one."""
    assert Notifications(channel="Shop.customers").channel_of("customers") == "Shop.customers"


@pytest.mark.parametrize("channel", ["", "c" * 64, "a b", 'a"b'])
def test_other_channels_are_refused(channel: str) -> None:
    """What PostgreSQL would cut, or would have to be quoted, is no name."""
    [fault] = table_faults(refresh={"listen": {"channel": channel}})

    assert fault.startswith("refresh.listen.channel: ")
