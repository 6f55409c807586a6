"""What readers have read and nobody has taken yet, bounded in bytes, in lanes that take turns.

Order is kept within a lane only. Knows nothing of splits: who shares a lane is the caller's choice.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_PARCEL_BYTES = 256  # what one takes beside what it brings

Parcel = TypeVar("Parcel")


@dataclass(slots=True)
class _Lane(Generic[Parcel]):
    parcels: deque[tuple[Parcel, int]] = field(default_factory=deque)  # (parcel, its bytes)
    nbytes: int = 0
    has_room: asyncio.Event = field(default_factory=asyncio.Event)


class SplitBuffer(Generic[Parcel]):
    """Lanes of parcels, each lane with one reader; all are emptied by the same consumer.

    A lane holds at most `lane_bytes`, or a single parcel that is larger. `on_arrival` is called
    when there is something to take; it must not block.
    """

    def __init__(self, lane_bytes: int, on_arrival: Callable[[], None]) -> None:
        self._lane_bytes = lane_bytes
        self._on_arrival = on_arrival
        self._lanes: dict[str, _Lane[Parcel]] = {}
        self._turns: deque[_Lane[Parcel]] = deque()  # those that hold something

    @property
    def nbytes(self) -> int:
        """What all lanes hold."""
        return sum(lane.nbytes for lane in self._lanes.values())

    async def put(self, lane_name: str, parcel: Parcel, *, nbytes: int) -> None:
        """Wait until the lane has room, and add it at its end; cancelled, it is not there."""
        lane = self._lanes.setdefault(lane_name, _Lane())
        nbytes += _PARCEL_BYTES
        while lane.parcels and lane.nbytes + nbytes > self._lane_bytes:
            lane.has_room.clear()
            await lane.has_room.wait()
        if not lane.parcels:
            self._turns.append(lane)
        lane.parcels.append((parcel, nbytes))
        lane.nbytes += nbytes
        self._on_arrival()

    def pop(self) -> Parcel | None:
        """The oldest of the lane whose turn it is; None when all are empty."""
        if not self._turns:
            return None
        lane = self._turns.popleft()
        parcel, nbytes = lane.parcels.popleft()
        lane.nbytes -= nbytes
        if lane.parcels:
            self._turns.append(lane)
        lane.has_room.set()
        return parcel
