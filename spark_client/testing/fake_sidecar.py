"""Fake sidecar: the service's own protocol, over dimensions in Arrow tables.

It has no clock, network or thread.
"""

from collections.abc import Mapping, Sequence

from lookup_core.answer import Answer
from lookup_core.errors import BackendError, InvalidRequest, named_dimension
from lookup_core.protocol import frames
from lookup_core.protocol.channel_registry import ChannelRegistry
from lookup_core.protocol.credit_ledger import NOTHING, CreditLedger, Grant
from lookup_core.protocol.server_channel import ChannelSchema, LookupPart
from lookup_core.protocol.stream_effects import Describe, Effect, Leave, Offer, Submit
from lookup_core.protocol.stream_server import StreamServer
from spark_client.testing.served_dimension import ServedDimension

AGENT = "fake-sidecar"
_NOW_S = 0.0  # its lookups have no deadline
_UNLIMITED_BYTES = 2**50


class FixedCredit(CreditLedger[int]):
    """The same credit for each channel, which gets all of it back."""

    def __init__(self, records: int = 1_000, size: int = 1_000_000) -> None:
        super().__init__(_UNLIMITED_BYTES, max_channels=frames.MAX_CHANNELS)
        self.share = Grant(records, size)

    def lend(self, channel: int, wanted: Grant) -> Grant:  # noqa: ARG002 -- of the ledger
        """Lend nothing."""
        return NOTHING

    def take_back(self, channel: int, ended: Grant, *, record_bytes: int) -> Grant:  # noqa: ARG002
        """Keep nothing back."""
        return NOTHING


class FakePeer:
    """The service's side of one connection, of `sidelook.v1`; called by one thread at a time."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], credit: FixedCredit | None = None
    ) -> None:
        self._dimensions = dimensions
        registry = ChannelRegistry(
            credit or FixedCredit(), answer_bytes=_UNLIMITED_BYTES, guess_bytes=1
        )
        self._turns = registry.turns
        self.server = StreamServer(1, registry, agent=AGENT)
        self.waiting: dict[LookupPart, list[Answer]] = {}  # {part: its answers}

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """The immediate replies; raises ProtocolViolation to close the connection."""
        self._carry_out(self.server.receive(message, _NOW_S))
        return self.replies()

    def more(self) -> Sequence[bytes]:
        """Later messages: all answers that wait."""
        while self.waiting:
            self.answer(next(iter(self.waiting)))
        return self.replies()

    def offer(self, requested: frames.Open) -> Offer:
        """The reply to OPEN; raises InvalidRequest or BackendError to refuse it."""
        dimension = named_dimension(self._dimensions, requested.dimension)
        return Offer(
            ChannelSchema(requested, dimension.described),
            waits=dimension.waits,
            has_all_rows=dimension.has_all_rows,
            default=dimension.default_row if requested.wants_default else None,
        )

    def answer(self, part: LookupPart) -> None:
        """Send the next answer of a part that waits."""
        answers = self.waiting[part]
        answer = answers.pop(0)
        if not answers:
            del self.waiting[part]
        self.server.on_answer(part, answer, _NOW_S, reasons={})

    def replies(self) -> list[bytes]:
        """The messages that may be sent now."""
        replies: list[bytes] = []
        while (message := self.server.message_to_send(_NOW_S)) is not None:
            replies.append(message)
        return replies

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Describe(requested):
                    self._open(requested)
                case Submit():
                    self.submit(effect)
                case Leave(parts=parts):
                    for part in parts:
                        del self.waiting[part]
                case _:
                    pass  # it has no spans, statistics or limits
        while (submit := self._turns.next_part()) is not None:
            self.submit(submit)

    def _open(self, requested: frames.Open) -> None:
        try:
            offer = self.offer(requested)
        except (InvalidRequest, BackendError) as error:
            self.server.refuse(requested, error)
        else:
            self.server.accept(requested, offer, _NOW_S)

    def submit(self, submit: Submit) -> None:
        """Look up the keys of a part; its answers wait."""
        channel = submit.part.lookup.channel
        dimension = self._dimensions[channel.opened.dimension]
        keys = channel.schema.typed_keys(submit.keys, dimension.described)
        self.waiting[submit.part] = dimension.answers(keys, channel.schema.names)


class MemorySidecar:
    """One sidecar process; any thread may connect, any number of times."""

    def __init__(self, dimensions: Mapping[str, ServedDimension]) -> None:
        self.dimensions = dimensions

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for any transport."""
        return FakePeer(self.dimensions)
