"""Shared parts of all streams of the process, and their timeouts."""

from dataclasses import dataclass

from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.lookup_scheduler import LearnedCosts
from service.engine.tracer import Tracer
from service.stream.channel_registry import ChannelRegistry
from service.stream.lookup_queue import LookupQueue


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Of one connection."""

    hello_s: float = 10.0  # until the first frame
    describe_s: float = 2.0  # how long OPEN waits for a store that has not told its schema
    send_s: float = 30.0  # for taking one frame
    close_s: float = 2.0  # for answering the close of the connection
    heartbeat_s: float = 15.0  # of silence until a ping; half of it for the answer


@dataclass(frozen=True, slots=True)
class StreamParts:
    """The parts that a connection works with."""

    registry: ChannelRegistry
    line: LookupQueue
    budget: AnswerBudget[int]  # by the number of the connection
    costs: LearnedCosts
    agent: str
    timeouts: Timeouts
    tracer: Tracer
