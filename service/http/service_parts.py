"""What the HTTP surface is made of, as its owner hands it over.

Only references: whoever made a part also closes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp.typedefs import Handler

from lookup_core.protocol.server_channel import ChannelStatistics
from service.engine.dimension import Dimension
from service.engine.tracer import NullTracer, Tracer
from service.http.answer_room import AnswerRoom
from service.http.body_room import BodyRoom
from service.http.limits import Limits
from service.http.readiness import Readiness
from service.http.vitals import Vitals


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """All that the routes need; the same for every listener."""

    dimensions: Mapping[str, Dimension]
    readiness: Readiness
    channels: Callable[[], Sequence[ChannelStatistics]]
    stream: Handler  # of `/v1/stream`; upgrades the connection itself
    metrics: Callable[[], bytes]
    version: str
    vitals: Vitals = field(default_factory=Vitals)
    limits: Limits = field(default_factory=Limits)
    body_room: BodyRoom = field(default_factory=BodyRoom)
    answer_room: AnswerRoom = field(default_factory=AnswerRoom)
    tracer: Tracer = field(default_factory=NullTracer)
