"""A partition whose log loses its end, as after an unclean election of a leader."""

import struct
from pathlib import Path

from demo.embedded_kafka.kafka_broker import KafkaBroker

_BATCH = struct.Struct(">qi")  # first offset, and the bytes after these
_FIRST_SEGMENT = "00000000000000000000"


def shorten_log(broker: KafkaBroker, topic: str, *, end: int) -> None:
    """Remove the batches from this offset on, of the first partition; the broker is down."""
    folder = broker.log.parent / "data" / f"{topic}-0"
    segment = folder / f"{_FIRST_SEGMENT}.log"
    content, at = segment.read_bytes(), 0
    while at < len(content):
        first, nbytes = _BATCH.unpack_from(content, at)
        if first >= end:
            break
        at += _BATCH.size + nbytes
    segment.write_bytes(content[:at])
    _remove_indexes(folder)


def _remove_indexes(folder: Path) -> None:
    for each in folder.glob(f"{_FIRST_SEGMENT}.*index"):
        each.unlink()
