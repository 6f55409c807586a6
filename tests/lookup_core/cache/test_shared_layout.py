"""Layout of shared caches: the map of files, and the fence."""

from types import TracebackType

import pytest

from lookup_core.cache.shared_layout import (
    CacheMap,
    LockFence,
)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"[[], 1, 2, [], []]", b"[1, 2, 3, 4, 5]"])
def test_other_maps_are_refused(content: bytes) -> None:
    """Another content raises ValueError or TypeError."""
    with pytest.raises((ValueError, TypeError)):
        CacheMap.decoded(content)


class NotedLock:
    """A lock that notes its uses."""

    def __init__(self) -> None:
        self.uses: list[str] = []

    def __enter__(self) -> None:
        """Acquire it."""
        self.uses.append("acquire")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Release it."""
        self.uses.append("release")


def test_fence_releases_before_it_acquires() -> None:
    """Between what precedes a fence and what follows are a release and an acquisition."""
    lock = NotedLock()

    LockFence(lock)()

    assert lock.uses == ["acquire", "release"] * 2
