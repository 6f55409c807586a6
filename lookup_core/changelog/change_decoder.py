"""What a decoder of change messages takes and gives.

Words only; the decoders stand in modules beside this one, which of them is used in `format`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lookup_core.changelog.change import Change
from lookup_core.changelog.told_log import ToldLog
from lookup_core.watermark_valve import NO_WATERMARK_MS

# From the bytes of a JSON document; raises ValueError. A parameter of the decoders, because whoever
# has this package without the service has no fast library for it.
JsonLoads: TypeAlias = Callable[[bytes], object]


class ChangeMessage(Protocol):
    """One message of a partition, named as a record of Kafka's is."""

    @property
    def key(self) -> bytes | None:
        """The message's key."""

    @property
    def value(self) -> bytes | None:
        """The message's value; None: a tombstone."""

    @property
    def timestamp(self) -> int:
        """When it was written, in ms since the epoch; negative: unknown."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What n messages say, in their order."""

    changes: Sequence[Change]
    source_time_ms: int = NO_WATERMARK_MS  # the latest one that the messages tell of
    ignored: int = 0  # messages that say nothing of the table
    faults: Mapping[int, str] = field(default_factory=dict)  # {position of a message: why}
    nbytes: int = 0  # what the changes hold in memory


class ChangeDecoder(Protocol):
    """Decodes the messages of one topic; remembers none of them."""

    def decode(self, messages: Sequence[ChangeMessage], log: ToldLog | None = None) -> Decoded:
        """What the messages of one partition say; never raises.

        Whatever cannot be decoded is a TableChange at its place, and stands in `faults`. Rows are
        not told if a later one was: `log` knows that, and notes what is told now. None: the first.
        """


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """What a decoder has to know besides the schema."""

    table: str  # "schema.table", as Debezium names it; of no account for upserts
    # Whether rows and their absence are told, not only keys. Only where each row has a key of its
    # own and messages tell the columns exactly: see the module of the format.
    with_rows: bool
    database: str | None = None  # Debezium's name of it; None: there is only one
    has_full_identity: bool = False  # the table has REPLICA IDENTITY FULL
    max_message_bytes: int = 8 * 2**20  # key and value; a larger one counts as undecodable
