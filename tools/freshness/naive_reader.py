"""Readers of shared caches with a deliberate fault that the freshness audit must find."""

from functools import partial
from pathlib import Path

from lookup_core.cache.cache_view import EntryReader
from spark_client.transport.connection import Connection, Timing
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from spark_client.transport.shared_cache import SharedCache
from tools.freshness.table import KEYS

LEASELESS = "leaseless"  # reads a cache whose lease has ended
MAPLESS = "mapless"  # does not check that its map of a cache is the published one
_MANY = KEYS // 2
_TIMEOUT_S = 10.0


class LeaselessCache(SharedCache):
    """Ignores the lease."""

    @property
    def has_lease(self) -> bool:
        """See `SharedCache`."""
        return True


class MaplessCache(SharedCache):
    """Keeps to its first map with many rows."""

    def reader(self) -> EntryReader | None:
        """See `SharedCache`."""
        rows = sum(each.num_rows for each in self._segments.values())
        return self._reader if rows > _MANY and self.has_lease else super().reader()

    def release(self) -> None:
        """Keep everything."""


_CACHES = {LEASELESS: LeaselessCache, MAPLESS: MaplessCache}
READER_TWINS = tuple(_CACHES)


class FaultyConnection(Connection):
    """A connection with such caches."""

    def __init__(self, url: str, cache: type[SharedCache]) -> None:
        connect = partial(handshake, endpoint_of(url), token=None, timeout_s=_TIMEOUT_S)
        super().__init__(connect, url=url, timing=Timing())
        self._faulty = cache

    def _shared_cache(self, folder: str) -> SharedCache | None:
        if folder not in self._caches:
            self._caches[folder] = self._faulty(Path(folder))
        return self._caches[folder]


def faulty_connection(url: str, twin: str) -> Connection:
    """A connection of a reader with this fault."""
    return FaultyConnection(url, _CACHES[twin])
