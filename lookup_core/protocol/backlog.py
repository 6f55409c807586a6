"""What a channel's client has ready and may not send yet, in order: keys, and watermarks between.

Does not judge what may be sent: that is `client_credit`'s.
"""

from collections import deque
from collections.abc import Iterable

from lookup_core.answer import rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.outcome import Outcome
from lookup_core.protocol.channel_answer import ChannelAnswer
from lookup_core.protocol.sent_lookups import AskedKeys, QuestionId, SentWatermark
from lookup_core.protocol.too_large_keys import too_large_keys

Entry = AskedKeys | SentWatermark


class Backlog:
    """Entries, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self.records = 0

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._entries)

    @property
    def head(self) -> Entry:
        """The oldest; there is one."""
        return self._entries[0]

    def add(self, entry: Entry) -> None:
        """Behind all others."""
        self._entries.append(entry)
        self.records += _records(entry)

    def add_fitting(self, asked: AskedKeys, most_bytes: int) -> list[ChannelAnswer]:
        """The same without keys that take more than so many bytes on the wire; answers to those."""
        refused, rest = _without_too_large(asked, most_bytes)
        for entry in rest:
            self.add(entry)
        return refused

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Before all others, in this order: they were sent before and have to be sent again."""
        for entry in reversed(list(entries)):
            self._entries.appendleft(entry)
            self.records += _records(entry)

    def pop(self) -> None:
        """The oldest is sent."""
        self.records -= _records(self._entries.popleft())

    def take(self, asked: AskedKeys, count: int) -> AskedKeys:
        """The first `count` keys of the oldest entry, which is `asked`, are sent."""
        self.pop()
        first, rest = asked.split(count)
        if rest.count:
            self.put_back([rest])
        return first

    def drop(self, question: QuestionId) -> None:
        """Nobody waits for this question any more."""
        self._replace(entry for entry in self._entries if not _belongs(entry, question))

    def clear(self) -> None:
        """Drop all."""
        self._replace(())

    def refuse_too_large(self, most_bytes: int) -> list[ChannelAnswer]:
        """Take keys out that take more than so many bytes on the wire; the answers to those."""
        refused: list[ChannelAnswer] = []
        kept: list[Entry] = []
        for entry in self._entries:
            answer, rest = _without_too_large(entry, most_bytes)
            refused += answer
            kept += rest
        if refused:
            self._replace(kept)
        return refused

    def check_invariants(self) -> None:
        """For tests: the sum is that of the entries, and none is empty."""
        assert self.records == sum(map(_records, self._entries))
        assert all(_records(entry) for entry in self._entries if isinstance(entry, AskedKeys))

    def _replace(self, entries: Iterable[Entry]) -> None:
        self._entries = deque(entries)
        self.records = sum(map(_records, self._entries))


def _records(entry: Entry) -> int:
    return entry.count if isinstance(entry, AskedKeys) else 0


def _belongs(entry: Entry, question: QuestionId) -> bool:
    return isinstance(entry, AskedKeys) and entry.question == question


def _without_too_large(entry: Entry, most_bytes: int) -> tuple[list[ChannelAnswer], list[Entry]]:
    if isinstance(entry, SentWatermark):
        return [], [entry]
    too_large = too_large_keys(entry.keys, most_bytes)
    if not len(too_large):
        return [], [entry]
    answer = rowless_answer(too_large, Outcome.ERROR, error=ErrorCode.KEY_TOO_LARGE)
    # What lies between two of them stays in one piece.
    starts, stops = [0, *(too_large + 1).tolist()], [*too_large.tolist(), entry.count]
    runs = [entry.part(*run) for run in zip(starts, stops, strict=True) if run[0] < run[1]]
    return [ChannelAnswer(entry.question, answer.moved(entry.start))], list(runs)
