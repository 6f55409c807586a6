"""The JSON part of a frame: four bytes of length, then an object with a few named fields.

Not which kind of frame has which fields: that is the codec's business.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from lookup_core.errors import ErrorCode, ProtocolViolation

MAX_BYTES = 64 * 1024
MAX_COUNT = 2**53 - 1  # the largest that JSON carries exactly in every language

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class FrameDescription:
    """What a peer described, and what follows in the frame.

    Whatever a field holds besides what is asked for raises ProtocolViolation.
    """

    fields: Mapping[str, object]
    offset: int  # of the object in its frame
    rest: memoryview
    rest_offset: int

    def text(self, name: str) -> str:
        """A text."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise self._fault(name, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """A text, or nothing."""
        return None if self.fields.get(name) is None else self.text(name)

    def truth(self, name: str) -> bool:
        """True or false."""
        value = self.fields.get(name)
        if not isinstance(value, bool):
            raise self._fault(name, "true or false")
        return value

    def truth_if_told(self, name: str) -> bool:
        """True or false; false where it does not stand there, or nothing."""
        return self.fields.get(name) is not None and self.truth(name)

    def count(self, name: str) -> int:
        """A whole number from 0 to `MAX_COUNT`."""
        value = self.fields.get(name)
        if not _is_count(value):
            raise self._fault(name, "a whole number from 0 to 2**53 - 1")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 to `MAX_COUNT`."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(map(_is_count, value)):
            raise self._fault(name, "a list of whole numbers from 0 to 2**53 - 1")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self._fault(name, "a list of texts")
        return tuple(value)

    def texts_or_none(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, or nothing."""
        return None if self.fields.get(name) is None else self.texts(name)

    def _fault(self, name: str, wanted: str) -> ProtocolViolation:
        return _bad(f"the description's {name!r} must be {wanted}", self.offset)


def encode_description(fields: Mapping[str, object]) -> bytes:
    """The bytes of a description."""
    text = json.dumps(fields, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


def decode_description(body: memoryview, *, offset: int) -> FrameDescription:
    """The description at the start of a frame's body, which stands at byte `offset`.

    Raises ProtocolViolation for other bytes.
    """
    if len(body) < _LENGTH.size:
        raise _bad("the frame ends too early", offset + len(body))
    (length,) = _LENGTH.unpack_from(body)
    end = _LENGTH.size + length
    if length > MAX_BYTES or len(body) < end:
        raise _bad("the description is longer than the frame or its limit", offset)
    try:
        fields = json.loads(bytes(body[_LENGTH.size : end]).decode())
        # Half of a surrogate pair can be escaped in JSON, but not be written to a log or an answer.
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _bad("the description is not JSON", offset + _LENGTH.size) from error
    if not isinstance(fields, dict):
        raise _bad("the description must be a JSON object", offset + _LENGTH.size)
    return FrameDescription(fields, offset + _LENGTH.size, body[end:], offset + end)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _bad(detail: str, offset: int) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
