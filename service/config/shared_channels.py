"""Channels of notifications that two dimensions share, and must not.

What is told on a channel is the keys of one table: another one would take them for its own.
"""

from collections.abc import Mapping

from service.config.dimension import DimensionConfig
from service.config.source import PostgresSource


def shared_channel(dimensions: Mapping[str, DimensionConfig]) -> tuple[str, str] | None:
    """The second of two dimensions of other tables or keys with the same channel, and the first.

    Of one table and key they may share it; on another server it is another channel.
    """
    owners: dict[object, tuple[str, object]] = {}  # {server and channel: (name, keys)}
    for name, dimension in dimensions.items():
        source, listen = dimension.source, dimension.refresh.listen
        if listen is None or not isinstance(source, PostgresSource):
            continue
        channel = (source.dsn, source.dsn_file, listen.channel_of(name))
        owner, keys = owners.setdefault(channel, (name, (source.table, dimension.key)))
        if keys != (source.table, dimension.key):
            return name, owner
    return None
