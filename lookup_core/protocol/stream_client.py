"""Client side of `sidelook.v1`, without I/O: the channels to one sidecar.

They outlive connections. The caller connects, sends the message of `on_connected`, hands messages
to `receive`, calls `tick` every second, and carries out the reactions, all in one thread at a time.
`now_s` is monotonic.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import count

from lookup_core.backoff import NEVER, reopening_backoff
from lookup_core.deadlines import earliest
from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
    bad_frame,
)
from lookup_core.protocol import frames
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import MAX_CHANNELS, PROTOCOL_VERSION, ChannelFrame, Frame

AGENT = "sidelook-client"
WELCOME_TIMEOUT_S = 10.0
_STABLE_S = 10.0  # after which a connection resets the reconnect backoff


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the caller does next."""

    sending: tuple[Frame, ...] = ()
    changed: tuple[ClientChannel, ...] = ()  # opened, with answers, or failed: wake their tasks


class StreamClient:
    """All state of the client's protocol, except for what `ClientChannel` has of its channel.

    Errors that a method raises end the connection. A SidecarUnreachable may pass with another
    connection; any other error is for `fail_all`.
    """

    def __init__(self, url: str, *, connect_timeout_s: float) -> None:
        """`url` is for people; the timeout also bounds retries of refused channels."""
        self.channels: dict[int, ClientChannel] = {}  # {number: channel}
        self.is_welcome = False  # frames of channels may be sent
        self.outage: SidecarUnreachable | None = None  # since the last WELCOME
        self._url = url
        self._connect_timeout_s = connect_timeout_s
        self._numbers = count(1)
        self._is_leaving = False  # after GOAWAY
        self._greeted_s = 0.0  # when HELLO was sent, then when WELCOME came
        self._backoff = reopening_backoff(connect_timeout_s)

    @property
    def has_room(self) -> bool:
        """Whether another channel may be opened."""
        return len(self.channels) < MAX_CHANNELS

    def open(
        self, request: ChannelRequest, *, is_interactive: bool = False
    ) -> tuple[ClientChannel, Reaction]:
        """A new channel, which is requested now, or on the next connection.

        With `is_interactive`, only refusals that heal by themselves are retried.
        """
        if not self.channels:
            self._backoff.on_success()  # earlier failures were of another outage
        number, give_up_after_s = next(self._numbers), self._connect_timeout_s
        channel = self.channels[number] = ClientChannel(
            number, request, give_up_after_s=give_up_after_s, is_interactive=is_interactive
        )
        may_open = self.is_welcome and not self._is_leaving
        return channel, self._reopened([channel] if may_open else [])

    def on_connected(self, now_s: float) -> bytes:
        """A connection exists: the first message to send."""
        self._greeted_s = now_s
        return encode_frame(frames.Hello((PROTOCOL_VERSION,), AGENT))

    def on_lost(self) -> None:
        """The connection is lost: no channel sends anything before its OPEN on the next one."""
        self.is_welcome = self._is_leaving = False
        for channel in self.channels.values():
            channel.on_lost()

    def retry_in_s(self, error: SidecarUnreachable, *, now_s: float, jitter: float) -> float:
        """The delay until the next attempt to connect; raises after the connect timeout."""
        self.outage = error
        delay_s = self._backoff.on_failure(jitter, now=now_s)
        if delay_s == NEVER:
            raise given_up(self._url, error, self._connect_timeout_s) from error
        return delay_s

    def receive(self, message: bytes, *, now_s: float, jitter: float) -> Reaction:
        """Take a message of the service.

        Raises SidecarUnreachable for a retriable ERROR of the connection, InvalidRequest or
        BackendError for others, ProtocolViolation for anything that the protocol does not allow.
        """
        frame = decode_frame(message)
        if not self.is_welcome:
            return self._on_welcome(frame, now_s)
        match frame:
            case frames.Opened() | frames.Credit() | frames.Result() | frames.Reason():
                return self._on_channel_frame(frame, now_s)
            case frames.Failure():
                return self._on_failure(frame, now_s=now_s, jitter=jitter)
            case frames.Goaway():
                self._is_leaving = True
                for channel in self.channels.values():
                    channel.pause()
            case frames.Closed():
                pass  # the closed channel was forgotten
            case _:
                kind = type(frame).__name__.upper()
                raise bad_frame(f"a sidecar never sends {kind} here")
        return Reaction()

    def tick(self, now_s: float) -> Reaction:
        """Request the channels that are due.

        Raises SidecarUnreachable without WELCOME in time, and after GOAWAY once no answer is due.
        """
        age_s = now_s - self._greeted_s
        if not self.is_welcome:
            if age_s >= WELCOME_TIMEOUT_S:
                raise SidecarUnreachable(self._url, f"no WELCOME within {WELCOME_TIMEOUT_S:g} s")
            return Reaction()
        if self._is_leaving and all(each.is_quiet for each in self.channels.values()):
            raise SidecarUnreachable(self._url, "it is going away")
        if age_s >= _STABLE_S:
            self._backoff.on_success()
        return self._reopened(
            channel
            for channel in self.channels.values()
            if channel.reopen_at_s is not None and channel.reopen_at_s <= now_s
        )

    def next_due_s(self) -> float | None:
        """The earliest time at which `tick` requests a channel; none before WELCOME."""
        if not self.is_welcome:
            return None
        return earliest(*(each.reopen_at_s for each in self.channels.values()))

    def fail_all(self, error: SidelookError) -> Sequence[ClientChannel]:
        """End and forget all channels; returns them."""
        failed = list(self.channels.values())
        for channel in failed:
            own = copy(error)  # each task adds its remedies and traceback
            own.__cause__ = error.__cause__
            channel.fail(own)
        self.channels.clear()
        return failed

    def _on_welcome(self, frame: Frame, now_s: float) -> Reaction:
        match frame:
            case frames.Welcome(version=version, agent=agent):
                if version != PROTOCOL_VERSION:
                    raise InvalidRequest(
                        ErrorCode.UNSUPPORTED_VERSION,
                        f"{agent} speaks version {version}, this client {PROTOCOL_VERSION}",
                    )
            case frames.Failure():
                raise _error_of(frame)
            case _:
                raise bad_frame("the first frame must be WELCOME")
        self.is_welcome, self.outage, self._greeted_s = True, None, now_s
        return self._reopened(self.channels.values())

    def _on_channel_frame(self, frame: ChannelFrame, now_s: float) -> Reaction:
        is_news = isinstance(frame, frames.Opened | frames.Result)
        channel = self.channels.get(frame.channel)
        close = (frames.Close(frame.channel),)
        if channel is None:  # its task has closed it
            return Reaction(close if isinstance(frame, frames.Opened) else ())
        if isinstance(frame, frames.Result):
            self._backoff.on_success()
        try:
            sending = channel.receive(frame, now_s=now_s)
        except SidelookError as error:  # it must not end the other channels
            del self.channels[frame.channel]
            channel.fail(error)
            return Reaction(close, (channel,))
        return Reaction(tuple(sending), (channel,) if is_news else ())

    def _on_failure(self, failure: frames.Failure, *, now_s: float, jitter: float) -> Reaction:
        error = _error_of(failure)
        if failure.channel == frames.CONNECTION:
            raise SidecarUnreachable(self._url, str(error)) if error.is_retryable else error
        channel = self.channels.get(failure.channel)
        if channel is None:
            return Reaction()
        channel.on_refusal(error, now_s=now_s, jitter=jitter)
        if channel.failure is not None:
            del self.channels[failure.channel]
            return Reaction(changed=(channel,))
        if self._is_leaving:
            channel.pause()
        return Reaction()

    def _reopened(self, channels: Iterable[ClientChannel]) -> Reaction:
        requested = list(channels)
        sending = tuple(frame for channel in requested for frame in channel.reopen())
        return Reaction(sending, tuple(each for each in requested if each.failure is not None))


def given_up(url: str, last: SidecarUnreachable, timeout_s: float) -> SidecarUnreachable:
    """The error after tries for this time, of which the last one failed so."""
    tried = f"tried for {timeout_s:g} s; see connect_timeout"
    return SidecarUnreachable(url, f"{last.reason}; {tried}")


def _error_of(failure: frames.Failure) -> SidelookError:
    known = {str(code): code for code in ErrorCode}
    code = known.get(failure.code, ErrorCode.INTERNAL)
    if code.is_retryable or code is ErrorCode.INTERNAL:
        return BackendError(code, failure.detail, is_permanent=not failure.is_retryable)
    return InvalidRequest(code, failure.detail)
