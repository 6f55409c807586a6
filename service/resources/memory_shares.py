"""Shares of `limits.memory` for caches, credit, answers and request bodies."""

from dataclasses import dataclass

_MERGES = 1.5  # a merge of rows writes a copy before it frees the former files
_REPLACED_BYTES = 64 * 2**20  # files that the service has replaced and workers map up to a second


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Shares of `total_bytes`; their sum exceeds it, because they are rarely all in full use."""

    total_bytes: int

    @property
    def credit_bytes(self) -> int:
        """For waiting lookups of streams: a quarter."""
        return self.total_bytes // 4

    @property
    def stream_answer_bytes(self) -> int:
        """For unsent answers of streams: an eighth; allocators double it for large rows."""
        return self.total_bytes // 8

    @property
    def plain_answer_bytes(self) -> int:
        """For unsent answers of HTTP requests: an eighth."""
        return self.total_bytes // 8

    @property
    def body_bytes(self) -> int:
        """For bodies of HTTP requests: an eighth."""
        return self.total_bytes // 8

    def cache_scale(self, wanted_bytes: int) -> float:
        """The factor, 0 to 1, by which the caches fit into one half."""
        return min(1.0, self.total_bytes / 2 / max(wanted_bytes, 1))


def shared_file_bytes(cache_bytes: int) -> int:
    """The most that the files of shared caches with these bytes together need in a tmpfs."""
    return int(_MERGES * cache_bytes) + _REPLACED_BYTES if cache_bytes else 0
