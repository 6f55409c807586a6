"""Which channels are let in, and what they share."""

import pyarrow as pa
import pytest

from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded
from lookup_core.protocol.frames import Open
from service.engine.dimension import HTTP_CHANNEL, Dimension
from service.stream.channel_registry import ChannelRegistry
from tests.service.engine.running import customers, settings

MIB = 1024 * 1024


@pytest.fixture
def registry() -> ChannelRegistry:
    """Room for two channels."""
    dimension = Dimension(settings(), customers())
    return ChannelRegistry({"customers": dimension}, max_channels=2, credit_bytes=64 * MIB)


def add(registry: ChannelRegistry, channel: int) -> ChannelId:
    """Let a channel in."""
    opened = Open(channel, "customers", None, "task", pa.schema([]))
    turn, book = registry.admit(opened, connection=5)
    assert book.channel == channel
    return turn


def test_dimension_is_found_by_name(registry: ChannelRegistry) -> None:
    """A name that there is not gets those that there are."""
    assert registry.dimension("customers").name == "customers"
    with pytest.raises(InvalidRequest) as caught:
        registry.dimension("custmers")

    assert caught.value.code is ErrorCode.UNKNOWN_DIMENSION
    assert caught.value.detail == "no dimension 'custmers'; configured: customers"


def test_every_channel_has_turns_of_its_own(registry: ChannelRegistry) -> None:
    """No two channels take turns as one, and none as the plain requests."""
    turns = [add(registry, channel) for channel in (7, 8)]

    assert len({*turns, HTTP_CHANNEL}) == 3


def test_channels_are_listed_while_open(registry: ChannelRegistry) -> None:
    """The list is in the order of opening, and forgets what was removed."""
    first, _second = add(registry, 7), add(registry, 8)

    listed = [(each.connection, each.channel) for each in registry.statistics()]
    registry.remove(first)

    assert listed == [(5, 7), (5, 8)]
    assert [each.channel for each in registry.statistics()] == [8]


def test_too_many_channels_are_refused(registry: ChannelRegistry) -> None:
    """At the limit a newcomer is told to come back; a channel that ends makes room."""
    first, _second = add(registry, 7), add(registry, 8)
    with pytest.raises(Overloaded) as caught:
        add(registry, 9)
    registry.remove(first)

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)
    assert add(registry, 9) != first


def test_no_credit_is_a_refusal() -> None:
    """A channel that could not send anything useful is not opened."""
    registry = ChannelRegistry({}, max_channels=2, credit_bytes=1000)

    with pytest.raises(Overloaded):
        add(registry, 7)


def test_removing_twice_is_harmless(registry: ChannelRegistry) -> None:
    """Credit comes back once, whoever is first to notice the end."""
    turn = add(registry, 7)

    registry.remove(turn)
    registry.remove(turn)

    assert registry.statistics() == []


def test_channels_wait_for_memory(registry: ChannelRegistry) -> None:
    """Without memory for more, a newcomer is told to come back; those that are open stay."""
    add(registry, 7)
    registry.allow_growth(is_allowed=False)
    with pytest.raises(Overloaded) as caught:
        add(registry, 8)
    registry.allow_growth(is_allowed=True)
    add(registry, 8)

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)
    assert [each.channel for each in registry.statistics()] == [7, 8]
