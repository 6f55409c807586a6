"""Readers of shared caches with a deliberate fault that the freshness audit must find."""

from functools import partial
from pathlib import Path

from spark_client.transport.connection import Connection, Timing
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from spark_client.transport.shared_cache import MappedCache, MappedCaches

LEASELESS = "leaseless"  # reads a cache whose lease has ended
READER_TWINS = (LEASELESS,)
_TIMEOUT_S = 10.0


class LeaselessCache(MappedCache):
    """Ignores the lease."""

    @property
    def has_lease(self) -> bool:
        """See `MappedCache`."""
        return True


class LeaselessCaches(MappedCaches):
    """Such caches of one sidecar."""

    def cache(self, folder: str) -> MappedCache | None:
        """See `MappedCaches`."""
        return self.by_folder.setdefault(folder, LeaselessCache(Path(folder)))


class FaultyConnection(Connection):
    """A connection with such caches."""

    def __init__(self, url: str) -> None:
        connect = partial(handshake, endpoint_of(url), token=None, timeout_s=_TIMEOUT_S)
        timing = Timing()
        super().__init__(connect, url=url, timing=timing)
        self.caches = LeaselessCaches(url, clock=timing.cache_clock)
