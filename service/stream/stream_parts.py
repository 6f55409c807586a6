"""What all streams of the process share, and how it is with each of them.

Wiring only; one for all connections, made by the handler.
"""

from dataclasses import dataclass

from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.learned_costs import LearnedCosts
from service.engine.tracer import Tracer
from service.stream.channel_registry import ChannelRegistry
from service.stream.lookup_line import LookupLine
from service.stream.timeouts import Timeouts


@dataclass(frozen=True, slots=True)
class StreamParts:
    """The parts that a connection works with."""

    registry: ChannelRegistry
    line: LookupLine
    budget: AnswerBudget[int]  # by the number of the connection
    costs: LearnedCosts
    agent: str
    timeouts: Timeouts
    tracer: Tracer
