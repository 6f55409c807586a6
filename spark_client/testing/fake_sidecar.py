"""Fake sidecar: the service's own protocol, over dimensions in Arrow tables.

It has no clock, network or thread.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lookup_core.answer import Answer
from lookup_core.errors import BackendError, ErrorCode, InvalidRequest, named_dimension
from lookup_core.protocol import frames
from lookup_core.protocol.channel_registry import ChannelRegistry
from lookup_core.protocol.credit_ledger import NOTHING, CreditLedger, Grant
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.lookup_turns import AnswerBudget
from lookup_core.protocol.server_channel import ChannelSchema, LookupPart
from lookup_core.protocol.stream_effects import Describe, Effect, Leave, Offer, Submit
from lookup_core.protocol.stream_server import StreamServer
from spark_client.testing.served_dimension import ServedDimension

AGENT = "fake-sidecar"
_NOW_S = 0.0  # its lookups have no deadline
_UNLIMITED_BYTES = 2**50


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Credit, and the size and order of the answers."""

    credit_records: int = 1_000
    credit_bytes: int = 1_000_000
    part_size: int | None = None  # keys of one RESULT; None: one for each outcome
    seed: int | None = None  # shuffles the parts that wait; None: they come in order
    is_silent: bool = False  # takes lookups and never answers
    returns_credit: bool = True  # False: CREDIT is always 0, as if other channels needed it
    cache: str | None = None  # the folder of a shared cache


@dataclass(slots=True)
class Memory:
    """State of a sidecar over all its connections."""

    received: list[Frame] = field(default_factory=list)  # without HELLO
    refusals: list[frames.Failure] = field(default_factory=list)  # for the next OPENs, one each
    chance: random.Random = field(default_factory=random.Random)


class _FixedCredit(CreditLedger[int]):
    """The credit of a behaviour for each channel, and no more for a backlog."""

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(_UNLIMITED_BYTES, max_channels=frames.MAX_CHANNELS)
        self.share = Grant(behaviour.credit_records, behaviour.credit_bytes)
        self._returns_credit = behaviour.returns_credit

    def lend(self, channel: int, wanted: Grant) -> Grant:  # noqa: ARG002 -- of the ledger
        """Lend nothing."""
        return NOTHING

    def take_back(self, channel: int, ended: Grant, *, record_bytes: int) -> Grant:  # noqa: ARG002
        """Let the channel have all of it again, or nothing."""
        return NOTHING if self._returns_credit else ended


class FakePeer:
    """The service's side of one connection, of `sidelook.v1`; called by one thread at a time."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour, memory: Memory
    ) -> None:
        self._dimensions = dimensions
        self._behaviour = behaviour
        self._memory = memory
        registry = ChannelRegistry(
            _FixedCredit(behaviour), AnswerBudget(_UNLIMITED_BYTES), guess_bytes=1
        )
        self._turns = registry.turns
        self.server = StreamServer(1, registry, agent=AGENT)
        self._waiting: dict[LookupPart, list[Answer]] = {}  # {part: its answers}

    def on_message(self, message: bytes) -> Sequence[bytes]:
        """The immediate replies; raises ProtocolViolation to close the connection."""
        frame = decode_frame(message)
        if not isinstance(frame, frames.Hello):
            self._memory.received.append(frame)
        self._carry_out(self.server.receive(message, _NOW_S))
        return self._replies()

    def more(self) -> Sequence[bytes]:
        """Later messages: the next answer that waits, or all of them without a seed."""
        seed, chance = self._behaviour.seed, self._memory.chance
        while self._waiting and not self._behaviour.is_silent:
            parts = [*self._waiting]
            self._answer(parts[0] if seed is None else chance.choice(parts))
            if seed is not None:
                break
        return self._replies()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Describe(requested):
                    self._open(requested)
                case Submit():
                    self._submit(effect)
                case Leave(parts=parts):
                    for part in parts:
                        del self._waiting[part]
                case _:
                    pass  # it has no spans, statistics or limits
        while (submit := self._turns.next_part()) is not None:
            self._submit(submit)

    def _open(self, requested: frames.Open) -> None:
        try:
            if self._memory.refusals:
                raise _error_of(self._memory.refusals.pop(0))
            dimension = named_dimension(self._dimensions, requested.dimension)
            offer = Offer(
                ChannelSchema(requested, dimension.described),
                waits=dimension.waits,
                has_all_rows=dimension.has_all_rows,
                default=dimension.default_row if requested.wants_default else None,
                cache=self._behaviour.cache,
            )
        except (InvalidRequest, BackendError) as error:
            self.server.refuse(requested, error)
        else:
            self.server.accept(requested, offer, _NOW_S)

    def _submit(self, submit: Submit) -> None:
        channel = submit.part.lookup.channel
        dimension = self._dimensions[channel.opened.dimension]
        keys = channel.schema.typed_keys(submit.keys, dimension.described)
        answers = dimension.answers(keys, channel.schema.names)
        size = self._behaviour.part_size
        self._waiting[submit.part] = [
            part for answer in answers for part in answer.parts(size or answer.size)
        ]

    def _answer(self, part: LookupPart) -> None:
        answers = self._waiting[part]
        answer = answers.pop(0)
        if not answers:
            del self._waiting[part]
        self.server.on_answer(part, answer, _NOW_S, reasons={})

    def _replies(self) -> list[bytes]:
        replies: list[bytes] = []
        while (message := self.server.message_to_send(_NOW_S)) is not None:
            replies.append(message)
        return replies


class MemorySidecar:
    """One sidecar process; any thread may connect, any number of times."""

    def __init__(
        self, dimensions: Mapping[str, ServedDimension], behaviour: Behaviour | None = None
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.memory = Memory(chance=random.Random(self.behaviour.seed))  # noqa: S311 -- repeatable
        self._dimensions = dimensions

    @property
    def names(self) -> list[str]:
        """The names of the dimensions, sorted."""
        return sorted(self._dimensions)

    def new_peer(self) -> FakePeer:
        """The service's side of a new connection, for any transport."""
        return FakePeer(self._dimensions, self.behaviour, self.memory)


def _error_of(failure: frames.Failure) -> BackendError:
    code = ErrorCode(failure.code)
    return BackendError(code, failure.detail, is_permanent=not failure.is_retryable)
