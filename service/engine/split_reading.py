"""One reader at work: it is given splits, and what it reads goes into a buffer.

Decides nothing and takes nothing: how far a split is, and what becomes of one that failed, is known
where the buffer is emptied.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.sources.reading_mode import ReadingMode
from lookup_core.sources.split_ledger import Assignment
from service.engine.backend_call import backend_call
from service.engine.opened_adapter import opened_adapter
from service.engine.split_buffer import SplitBuffer
from service.sources.interface import Source, SplitPiece, SplitReader

_READING_TIMEOUT_S = 60.0  # a reader answers within a second, unless its store is slow
_SHARED_LANE = ""


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """A reader has failed, and with it all splits that it had."""

    split_ids: frozenset[str]
    error: BackendError


@dataclass(frozen=True, slots=True)
class ReadingParts:
    """What all readers of one source work with."""

    source: Source
    schema: DimensionSchema
    buffer: SplitBuffer[SplitPiece | ReadingFault]
    next_split: Callable[[], Assignment | None]  # one more that may be read, which then is had
    paused: Callable[[], frozenset[str]]  # those that have to wait for others


class SplitReading:
    """The life of one reader, from its first split to its last, or to its first failure."""

    def __init__(self, first: Assignment, parts: ReadingParts) -> None:
        self._parts = parts
        self._mode = parts.source.reading_mode
        self._lane = first.split.id if self._mode is ReadingMode.PARALLEL else _SHARED_LANE
        self._had = [first]  # and not yet assigned to the reader
        self._split_ids = {first.split.id}  # that it has to read, or is to be given
        self._paused: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Read until no split is left; a failure goes into the buffer, behind what was read.

        Cancellation closes the reader; what it read and could not put into the buffer is lost.
        """
        try:
            async with opened_adapter(self._parts.source.reader(self._parts.schema)) as reader:
                await self._read_all(reader)
        except BackendError as error:
            fault = ReadingFault(frozenset(self._split_ids), error)
            await self._parts.buffer.put(self._lane, fault, nbytes=0)

    async def _read_all(self, reader: SplitReader) -> None:
        while True:
            self._have_more()
            if not self._split_ids:
                return
            await self._assign(reader)
            self._pause(reader)
            for piece in await backend_call(reader.read(), timeout_s=_READING_TIMEOUT_S):
                if piece.is_finished:
                    self._split_ids.discard(piece.split_id)
                await self._parts.buffer.put(self._lane, piece, nbytes=piece.nbytes)
            await asyncio.sleep(0)  # a reader that has much at hand may never wait by itself

    def _have_more(self) -> None:
        while self._wants_more():
            assignment = self._parts.next_split()
            if assignment is None:
                return
            self._had.append(assignment)
            self._split_ids.add(assignment.split.id)

    def _wants_more(self) -> bool:
        match self._mode:
            case ReadingMode.MULTIPLEXED:
                return True
            case ReadingMode.SEQUENTIAL:
                return not self._split_ids
            case ReadingMode.PARALLEL:
                return False  # the next one has a reader and a buffer of its own

    async def _assign(self, reader: SplitReader) -> None:
        for assignment in self._had:
            call = reader.assign(assignment.split, position=assignment.position)
            await backend_call(call, timeout_s=_READING_TIMEOUT_S)
        self._had = []

    def _pause(self, reader: SplitReader) -> None:
        paused = self._parts.paused() & self._split_ids
        if paused != self._paused:
            reader.pause(paused)
            self._paused = paused
