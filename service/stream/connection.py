"""One WebSocket: moves its messages, and carries out the effects of its `StreamServer`."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import numpy as np
import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension.default_row import default_row
from lookup_core.dimension.dimension_events import ChannelId, Delivery, LookupId
from lookup_core.errors import (
    BackendError,
    ErrorCode,
    Overloaded,
    ProtocolViolation,
    SidelookError,
    bad_frame,
    named_dimension,
)
from lookup_core.lookup_options import NO_OPTIONS
from lookup_core.protocol import frames
from lookup_core.protocol.channel_registry import ChannelRegistry
from lookup_core.protocol.server_channel import (
    ChannelSchema,
    LookupPart,
    ServerChannel,
    ServerLookup,
)
from lookup_core.protocol.stream_effects import (
    CountCached,
    Describe,
    Effect,
    Leave,
    Offer,
    Received,
    Revoke,
    StopDescribing,
    Submit,
)
from lookup_core.protocol.stream_server import StreamServer
from lookup_core.rate_limits import TokenBucket
from lookup_core.settings import Match
from service.engine.dimension import Dimension
from service.engine.tracer import CallerSpan, Tracer

log = structlog.get_logger()

PING_BURST = 20
PINGS_PER_SECOND = 2.0  # clients ping every few seconds
_MAX_REASON_BYTES = 120  # a close frame holds 123
_PINGS = {WSMsgType.PING, WSMsgType.PONG}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of one connection."""

    hello_s: float = 10.0  # until the first frame
    describe_s: float = 2.0  # how long OPEN waits for the description by the backend
    send_s: float = 30.0  # until the peer has taken one frame
    close_s: float = 2.0  # until the peer has answered the close
    heartbeat_s: float = 15.0  # silence until a ping; half of it until the pong


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What all connections of the process share."""

    dimensions: Mapping[str, Dimension]
    registry: ChannelRegistry
    agent: str
    timeouts: Timeouts
    tracer: Tracer
    clock: Callable[[], float]
    work_clock: Callable[[], float] = time.thread_time  # other processes do not count
    connections: dict[int, "StreamConnection"] = field(default_factory=dict)  # by number
    turns_are_due: asyncio.Event = field(default_factory=asyncio.Event)


class ConnectionEnded(Exception):
    """Ends the tasks of one connection; the peer gets code and reason."""

    def __init__(self, code: WSCloseCode, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def message(self) -> bytes:
        """The reason, cut between characters to the size of a close frame."""
        return self.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()


def connection_end(error: Exception, connection: int) -> ConnectionEnded:
    """Close code and reason for an error of a connection's task; logs violations and defects."""
    match error:
        case ConnectionEnded():
            return error
        case ProtocolViolation():
            log.warning(
                "stream.protocol_violation",
                connection=connection,
                code=error.code,
                detail=str(error),
            )
            return ConnectionEnded(WSCloseCode.PROTOCOL_ERROR, str(error))
        case TimeoutError():
            return ConnectionEnded(WSCloseCode.TRY_AGAIN_LATER, "the peer reads nothing")
        case ConnectionError():
            return ConnectionEnded(WSCloseCode.OK)
        case _:
            log.error("stream.internal_error", connection=connection, exc_info=error)
            return ConnectionEnded(WSCloseCode.INTERNAL_ERROR, "internal error of the service")


class StreamConnection:
    """Serves one WebSocket until it is closed."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        number: int,
        parts: StreamParts,
        *,
        is_local: bool = False,
    ) -> None:
        """`is_local`: the peer is on this machine, and may read shared caches."""
        self._socket = socket
        self._number = number
        self._is_local = is_local
        self._parts = parts
        self._timeouts = parts.timeouts
        self._protocol = StreamServer(number, parts.registry, agent=parts.agent)
        self._pings = TokenBucket(PING_BURST, per_second=PINGS_PER_SECOND)
        self._tasks = asyncio.TaskGroup()
        self._describing: dict[int, asyncio.Task[None]] = {}  # {channel being opened: task}
        self._submitted: dict[LookupPart, LookupId] = {}  # with unanswered records
        self._spans: dict[ServerLookup, CallerSpan] = {}  # {unanswered lookup: its span}
        self._has_messages = asyncio.Event()
        self._has_room = asyncio.Event()
        self._must_end = asyncio.Event()
        self._cause: Exception = ConnectionEnded(WSCloseCode.GOING_AWAY, "draining")

    async def serve(self) -> None:
        """Run until the connection ends; lookups and credit are released, even when cancelled."""
        end = await self._run()
        log.info("stream.closed", connection=self._number, code=end.code, reason=end.reason)
        try:
            async with asyncio.timeout(self._timeouts.close_s):
                # Not drained: a peer that reads nothing would block it.
                await self._socket.close(code=end.code, message=end.message, drain=False)
        except TimeoutError:
            log.info("stream.close_timeout", connection=self._number)

    @property
    def is_idle(self) -> bool:
        """Whether the socket has all frames."""
        return self._protocol.is_idle

    def go_away(self, reason: str) -> None:
        """Send GOAWAY, so that the peer opens nothing new; end a connection without HELLO."""
        if not self._protocol.go_away(reason):
            self.end()
        self._wake()

    def end(self) -> None:
        """Close the connection with code 1001; `serve` returns once it is closed."""
        self._must_end.set()

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Carry out effects of the protocol or the turns, and wake the tasks with work."""
        for effect in effects:
            match effect:
                case Received(lookup) if self._parts.tracer.is_on:
                    self._begin_span(lookup)
                case Submit():
                    self._submit(effect)
                case Describe(requested):
                    task = self._tasks.create_task(self._describe(requested))
                    self._describing[requested.channel] = task
                case StopDescribing(channel):
                    self._describing.pop(channel).cancel()
                case Leave():
                    self._leave(effect)
                case CountCached(dimension, outcomes, visited):
                    self._parts.dimensions[dimension].on_cached(outcomes, visited)
                case Revoke(connection, channel):
                    self._parts.connections[connection].revoke(channel)
        self._wake()

    def time_out(self, lookup: ServerLookup) -> None:
        """The deadline passed before all records of this lookup were submitted."""
        reasons = self._reasons(lookup.channel, [ErrorCode.TIMEOUT])
        answer = self._protocol.time_out(lookup, self._parts.clock(), reasons=reasons)
        self._parts.dimensions[lookup.channel.opened.dimension].count_timed_out(answer.size)
        if lookup in self._spans:
            self._trace(lookup, answer)
        self._wake()

    async def _run(self) -> ConnectionEnded:
        """Serve until one of the tasks fails, as one does at the end; returns why."""
        try:
            async with self._tasks:
                self._tasks.create_task(self._send())
                self._tasks.create_task(self._wait_for_end())
                await self._receive()
        except ExceptionGroup as group:
            # Border of the connection's tasks: a defect ends this connection only.
            return connection_end(group.exceptions[0], self._number)
        finally:
            # Before the close, which waits for the peer.
            self.carry_out(self._protocol.close(self._parts.clock()))

    async def _wait_for_end(self) -> NoReturn:
        await self._must_end.wait()
        raise self._cause

    async def _receive(self) -> NoReturn:
        try:
            async with asyncio.timeout(self._timeouts.hello_s):
                await self._receive_next()
        except TimeoutError as error:
            raise ConnectionEnded(WSCloseCode.POLICY_VIOLATION, "no HELLO in time") from error
        while True:
            await self._receive_next()
            # Buffered frames arrive without a pause: let other tasks run in between.
            await asyncio.sleep(0)

    async def _receive_next(self) -> None:
        while not self._protocol.has_room:
            self._has_room.clear()
            await self._has_room.wait()
        while (message := await self._socket.receive()).type in _PINGS:
            if message.type is WSMsgType.PING:
                await self._on_ping(message.data)
            await asyncio.sleep(0)
        if message.type is WSMsgType.TEXT:
            raise bad_frame("frames are binary messages")
        if message.type is not WSMsgType.BINARY:
            raise ConnectionEnded(WSCloseCode.OK)  # closed or broken
        self.carry_out(self._protocol.receive(message.data, self._parts.clock()))

    async def _on_ping(self, content: bytes) -> None:
        if not self._pings.take_token(self._parts.clock()):
            raise ConnectionEnded(WSCloseCode.POLICY_VIOLATION, "too many pings")
        async with asyncio.timeout(self._timeouts.send_s):
            await self._socket.pong(content)

    async def _send(self) -> NoReturn:
        """Send messages in order; TimeoutError for a peer that does not read in time."""
        while True:
            message = self._protocol.message_to_send(self._parts.clock())
            self._has_room.set()
            self._wake()  # the former message may have made room for other lookups
            if message is None:
                self._has_messages.clear()
                await self._has_messages.wait()
            else:
                async with asyncio.timeout(self._timeouts.send_s):
                    await self._socket.send_bytes(message)

    def _wake(self) -> None:
        """Wake the tasks with work, after a call of the protocol."""
        if self._protocol.has_messages:
            self._has_messages.set()
        if self._parts.registry.turns.is_due:
            self._parts.turns_are_due.set()

    async def _describe(self, requested: frames.Open) -> None:
        """Open a channel, or refuse it, once its dimension is described."""
        effects: Sequence[Effect] = ()
        try:
            dimension = named_dimension(self._parts.dimensions, requested.dimension)
            offer = await self._offer(requested, dimension)
        except SidelookError as error:
            self._protocol.refuse(requested, error)
        else:
            effects = self._protocol.accept(requested, offer, self._parts.clock())
        finally:
            # A cancelled task may end after the channel was requested again.
            if self._describing.get(requested.channel) is asyncio.current_task():
                del self._describing[requested.channel]
        self.carry_out(effects)

    async def _offer(self, requested: frames.Open, dimension: Dimension) -> Offer:
        described = await dimension.schema.wait(self._timeouts.describe_s)
        if not described.has_columns(requested.columns):
            described = await dimension.described_again(self._timeouts.describe_s)
        schema = ChannelSchema(
            requested, described, needed=dimension.check_options(requested.options)
        )
        settings, default = dimension.settings, None
        if requested.wants_default and settings.default is not None:
            names = schema.columns.names
            values = {name: value for name, value in settings.default.items() if name in names}
            default = default_row(values, schema.columns)
        return Offer(
            schema,
            waits=settings.wait_for_dimension_s > 0,
            has_all_rows=settings.match is Match.ALL,
            default=default,
            cache=dimension.shared_folder if self._is_local else None,
        )

    def revoke(self, channel: int) -> None:
        """End a silent channel, which has lost its share of credit."""
        log.info("stream.channel_revoked", connection=self._number, channel=channel)
        self._protocol.revoke(channel, self._parts.clock())
        self._wake()

    # Lookups

    def _submit(self, submit: Submit) -> None:
        """Look up a part; the answers that are known already are queued before it returns."""
        begun_at = self._parts.work_clock()
        try:
            for answer in self._known_answers(submit):
                self._on_answer(submit.part, answer)
        except Exception as error:  # noqa: BLE001 -- reported, not swallowed
            # Border of the turns' task: a defect ends this connection only.
            self._cause = error
            self._must_end.set()
        seconds = self._parts.work_clock() - begun_at
        submit.part.lookup.channel.costs.time.on_part(submit.keys.num_rows, seconds)

    def _known_answers(self, submit: Submit) -> Sequence[Answer]:
        part, lookup = submit.part, submit.part.lookup
        channel, opened = lookup.channel, lookup.channel.opened
        dimension = self._parts.dimensions[opened.dimension]
        try:
            submitted = dimension.submit(
                channel.schema.typed_keys(submit.keys, dimension.schema.known()),
                columns=channel.schema.names,
                channel=ChannelId(channel.id),
                timeout_s=lookup.deadline_s - self._parts.clock(),
                deliver=partial(self._deliver, part),
                event_time_ms=lookup.event_time_ms,
                span=self._spans.get(lookup),
                options=None if opened.options == NO_OPTIONS else opened.options,
            )
        except (Overloaded, BackendError) as error:
            positions = np.arange(submit.keys.num_rows, dtype=np.int32)
            return [rowless_answer(positions, Outcome.ERROR, error=error.code)]
        if not submitted.is_done:
            self._submitted[part] = submitted.lookup_id
        return submitted.answers

    def _deliver(self, part: LookupPart, delivery: Delivery) -> None:
        if delivery.is_last:
            self._submitted.pop(part, None)
        self._on_answer(part, delivery.answer)
        self._wake()

    def _on_answer(self, part: LookupPart, answer: Answer) -> None:
        lookup, errors = part.lookup, answer.errors
        reasons = self._reasons(lookup.channel, errors.values()) if errors else {}
        self._protocol.on_answer(part, answer, self._parts.clock(), reasons=reasons)
        if lookup in self._spans:
            self._trace(lookup, answer)

    def _reasons(self, channel: ServerChannel, codes: Iterable[ErrorCode]) -> dict[ErrorCode, str]:
        if not channel.opened.wants_reasons:
            return {}
        dimension = self._parts.dimensions[channel.opened.dimension]
        return {code: dimension.explanation(code) for code in dict.fromkeys(codes)}

    def _leave(self, left: Leave) -> None:
        dimension = self._parts.dimensions[left.lookup.channel.opened.dimension]
        if left.timed_out:
            dimension.count_timed_out(left.timed_out)
        for part in left.parts:
            lookup_id = self._submitted.pop(part, None)
            if lookup_id is not None:
                dimension.leave(lookup_id)
        span = self._spans.pop(left.lookup, None)
        if span is not None:
            span.end(is_left=True)

    def _begin_span(self, lookup: ServerLookup) -> None:
        opened = lookup.channel.opened
        span = self._parts.tracer.begin_lookup(
            opened.dimension, keys=lookup.records, parent=opened.trace
        )
        if span is not None:
            self._spans[lookup] = span

    def _trace(self, lookup: ServerLookup, answer: Answer) -> None:
        self._spans[lookup].count_outcomes(answer.outcomes)
        if not lookup.unanswered:
            self._spans.pop(lookup).end()
