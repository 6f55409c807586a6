"""Bounds of the whole process, whatever the number of dimensions, tasks and requests.

The bounds of single dimensions stand with the dimension.
"""

from typing import Annotated, Self

from pydantic import model_validator

from service.config.number import count
from service.config.quantity import size
from service.config.section import Section, written


class Limits(Section):
    """How much memory, and how many connections, channels, keys and bytes at a time."""

    memory_bytes: Annotated[int, size("16MiB", "1TiB")] = written("512MiB", alias="memory")
    connections: Annotated[int, count(1, 65_535)] = 256
    channels: Annotated[int, count(1, 1_000_000)] = 1024
    request_keys: Annotated[int, count(1, 10_000_000)] = 100_000
    request_bytes: Annotated[int, size("1KiB", "1GiB")] = written("32MiB")

    @model_validator(mode="after")
    def _fits_into_memory(self) -> Self:
        # Only where somebody wrote it: who lowers the memory has not asked for large requests.
        is_written = "request_bytes" in self.model_fields_set
        if is_written and self.request_bytes > self.memory_bytes:
            raise ValueError("request_bytes is more than memory; lower it, or raise that")
        return self
